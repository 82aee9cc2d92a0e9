// y = x w^T for many rows of 8-bit x on GPUs that multiply four bytes at a time. A workgroup of 128 computes a tile of
// 8 * TALL rows x 64 columns (16 quads of 4), an invocation TALL rows of one quad. Blocks of k go through workgroup memory as
// bytes, four values of k in a word: weights decoded, so that a tile decodes each weight once, and x as ready_rows.wgsl has
// packed it. The sum of a block is an exact integer; its zero point and its scale are applied in f32.
// include: q4_texel
// include: q4_out_rows
// include: q8_bytes
const TALL: u32 = 8;  // plan: rows per invocation
@group(0) @binding(3) var<storage, read> t_x: array<vec4<u32>>;  // 16 values of k
@group(0) @binding(4) var<storage, read> t_sizes: array<vec2<f32>>;  // step size and zero point of each row

// Invocation 16 g + q has rows g, g + 8, g + 16 ... of the tile. The rows of the next g begin 32 bytes further in the banks,
// so that neither loads nor stores conflict.
struct Rows { rows: array<array<vec4<u32>, 2>, TALL>, pad: array<vec4<u32>, 2> }
var<workgroup> x_tile: array<Rows, 8>;
var<workgroup> w_tile: array<array<vec4<u32>, 16>, 8>;  // [half block * 4 + column][quad]
var<workgroup> w_sums: array<array<i32, 16>, 8>;  // [half block * 4 + column][quad]

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) t: u32,
) {
  let first = wid.x * 8 * TALL;
  let q = t % 16;
  let g = t / 16;
  let c = g % 4;  // the column that this invocation decodes; two share it, half a block for either
  let half = g / 4;
  let quad = (wid.z * count.y + wid.y) * 16 + q;
  let strip = quad / LANES;
  let lane = quad % LANES;
  let x_row = t / 2;  // the row of x that this invocation copies
  let x_at = min(first + x_row, params.rows - 1) * (K / 16) + t % 2;
  var acc: array<vec4<f32>, TALL>;
  var zero: array<f32, TALL>;
  for (var r = 0u; r < TALL; r++) { // unroll
    zero[r] = t_sizes[min(first + g + r * 8, params.rows - 1)].y;
  }
  for (var b = 0u; b < BLOCKS; b++) {
    let at = (b * 4 + b / GROUP_BLOCKS + 1) * LANES + lane;
    let words = texel(strip, at + c * LANES);
    let scale = bitcast<vec4<f32>>(texel(strip, at - (b % GROUP_BLOCKS * 4 + 1) * LANES));
    if (x_row < 8 * TALL) { x_tile[x_row % 8].rows[x_row / 8][t % 2] = t_x[x_at + b * 2]; }
    let bytes = decoded(select(words.xy, words.zw, half == 1));
    w_tile[half * 4 + c][q] = bytes;
    w_sums[half * 4 + c][q] = add_dot(bytes, vec4(0x01010101u), 0);
    workgroupBarrier();
    let sums = vec4<f32>(vec4(w_sums[0][q], w_sums[1][q], w_sums[2][q], w_sums[3][q])
      + vec4(w_sums[4][q], w_sums[5][q], w_sums[6][q], w_sums[7][q]));
    for (var r = 0u; r < TALL; r++) { // unroll
      let x0 = x_tile[g].rows[r][0];
      let x1 = x_tile[g].rows[r][1];
      let d = vec4(
        add_dot(x1, w_tile[4][q], add_dot(x0, w_tile[0][q], 0)),
        add_dot(x1, w_tile[5][q], add_dot(x0, w_tile[1][q], 0)),
        add_dot(x1, w_tile[6][q], add_dot(x0, w_tile[2][q], 0)),
        add_dot(x1, w_tile[7][q], add_dot(x0, w_tile[3][q], 0)));
      acc[r] = fma(scale, fma(vec4(-zero[r]), sums, vec4<f32>(d)), acc[r]);
    }
    workgroupBarrier();
  }
  for (var r = 0u; r < TALL; r++) { // unroll
    let row = first + g + r * 8;
    store_row(row, strip, lane, acc[r] * (t_sizes[row].x / 16.0));
  }
}
