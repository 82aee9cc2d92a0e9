// y = x w^T for many rows on GPUs. A workgroup of 128 computes a tile of 8 * TALL rows x 64 columns (16 quads of 4), an
// invocation TALL rows of one quad. Each half of a block of k, 16 values, goes through workgroup memory: weights decoded, so
// that a tile decodes each weight once, and x as it is. Two halves of a block share the load of their texels.
// include: q4_texel
// include: q4_out_rows
const TALL: u32 = 8;  // plan: rows per invocation
const SIZES: u32 = 0;  // plan: 1 if x is in 8-bit steps
const COPIES: u32 = TALL / 4;  // vec4 of x per invocation and half block
@group(0) @binding(3) var<storage, read> t_x: array<vec4<f32>>;
// if SIZES: @group(0) @binding(4) var<storage, read> t_sizes: array<f32>;  // the step size of each row

alias Sums = array<vec4<f32>, TALL>;

// Invocation 16 g + q has rows g, g + 8, g + 16 ... of the tile. The four vec4 of a row are in the order k4 ^ (g % 4), and the
// rows of the next g begin 64 bytes further in the banks, so that neither loads nor stores conflict.
struct Rows { rows: array<array<vec4<f32>, 4>, TALL>, pad: array<vec4<f32>, 4> }
var<workgroup> x_tile: array<Rows, 8>;
var<workgroup> w_tile: array<array<vec4<f32>, 16>, 16>;  // [k][quad]

fn bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4(word & 0xffu, (word >> 8u) & 0xffu, (word >> 16u) & 0xffu, word >> 24u));
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) t: u32,
) {
  let first = wid.x * 8 * TALL;
  let q = t % 16;
  let g = t / 16;
  let quad = (wid.z * count.y + wid.y) * 16 + q;
  // The column that this invocation decodes: column c of another quad, so that 32 neighbours store into 32 banks. Two invocations
  // share a column, a word of each half block for either.
  let c = t % 4;
  let other = t / 4 % 16;
  let second = t / 64;
  let decoded = quad - q + other;
  let texels = decoded % LANES;
  var acc: Sums;
  for (var b = 0u; b < BLOCKS; b++) {
    let at = (b * 4 + b / GROUP_BLOCKS + 1) * LANES + texels;
    let w = texel(decoded / LANES, at + c * LANES);
    let scale = bitcast<vec4<f32>>(texel(decoded / LANES, at - (b % GROUP_BLOCKS * 4 + 1) * LANES))[c];
    for (var half = 0u; half < 2; half++) { // unroll
      for (var n = 0u; n < COPIES; n++) { // unroll
        let row = (n * 128 + t) / 4;
        let k4 = t % 4;
        let x = t_x[min(first + row, params.rows - 1) * (K / 4) + b * 8 + half * 4 + k4];
        x_tile[row % 8].rows[row / 8][k4 ^ (row % 4)] = x;
      }
      let word = select(w[half * 2], w[half * 2 + 1], second == 1);
      let low = fma(bytes(word & 0x0f0f0f0fu), vec4(scale), vec4(-8.0 * scale));
      let high = fma(bytes((word >> 4u) & 0x0f0f0f0fu), vec4(scale), vec4(-8.0 * scale));
      for (var j = 0u; j < 4; j++) { // unroll
        w_tile[second * 8 + j * 2][other][c] = low[j];
        w_tile[second * 8 + j * 2 + 1][other][c] = high[j];
      }
      workgroupBarrier();
      for (var k4 = 0u; k4 < 4; k4++) { // unroll
        let w0 = w_tile[k4 * 4][q];
        let w1 = w_tile[k4 * 4 + 1][q];
        let w2 = w_tile[k4 * 4 + 2][q];
        let w3 = w_tile[k4 * 4 + 3][q];
        let slot = k4 ^ (g % 4);
        for (var r = 0u; r < TALL; r++) { // unroll
          let x = x_tile[g].rows[r][slot];
          acc[r] = fma(vec4(x.w), w3, fma(vec4(x.z), w2, fma(vec4(x.y), w1, fma(vec4(x.x), w0, acc[r]))));
        }
      }
      workgroupBarrier();
    }
  }
  for (var r = 0u; r < TALL; r++) { // unroll
    let row = first + g + r * 8;
    var factor = 1.0;
    // if SIZES: factor = t_sizes[row];
    store_row(row, quad / LANES, quad % LANES, acc[r] * factor);
  }
}
