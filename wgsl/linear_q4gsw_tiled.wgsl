// y = x w^T for many rows on adapters with fast workgroup memory. A workgroup computes a tile of 32 rows and one strip of
// 4 * LANES columns. It decodes 32 k at a time into workgroup memory, so every weight is decoded once for 32 rows. An
// invocation sums 4 rows x 4 columns. x is read from storage, where neighbouring lanes read neighbouring values, so no
// uniform window limits the rows of a dispatch.
// include: q4_texel
// include: q4_out_rows
@group(0) @binding(3) var<storage, read> t_x: array<vec4<f32>>;

const ROWS: u32 = 32;

alias Sums = array<vec4<f32>, 4>;

var<workgroup> w_tile: array<vec4<f32>, 32 * LANES>;  // [k][lane]: its four columns
var<workgroup> x_tile: array<vec4<f32>, 32 * 8>;  // [k][row / 4]

fn sums(strip: u32, first: u32, t: u32) -> Sums {
  let lane = t % LANES;
  let c = t / LANES % 4;
  let half = t / LANES / 4;  // two invocations share a texel, two words each
  var acc = Sums();
  for (var b = 0u; b < BLOCKS; b++) {
    let g = b / GROUP_BLOCKS;
    let scale = bitcast<vec4<f32>>(texel(strip, g * (1 + GROUP_BLOCKS * 4) * LANES + lane))[c];
    let w = texel(strip, (b * 4 + g + 1 + c) * LANES + lane);
    let words = select(w.xy, w.zw, half == 1);
    for (var j = 0u; j < 8; j++) {
      let v = (vec2<f32>((words >> vec2(4 * j)) & vec2(15u)) - 8.0) * scale;
      w_tile[(half * 16 + j) * LANES + lane][c] = v.x;
      w_tile[(half * 16 + 8 + j) * LANES + lane][c] = v.y;
    }
    for (var i = t; i < ROWS * 8; i += LANES * 8) {
      let row = i / 8;
      let x = t_x[min(first + row, params.rows - 1) * (K / 4) + b * 8 + i % 8];
      for (var e = 0u; e < 4; e++) { x_tile[(i % 8 * 4 + e) * 8 + row / 4][row % 4] = x[e]; }
    }
    workgroupBarrier();
    for (var k = 0u; k < 32; k++) {
      let w4 = w_tile[k * LANES + lane];
      let x4 = x_tile[k * 8 + t / LANES];
      acc[0] = fma(vec4(x4.x), w4, acc[0]);
      acc[1] = fma(vec4(x4.y), w4, acc[1]);
      acc[2] = fma(vec4(x4.z), w4, acc[2]);
      acc[3] = fma(vec4(x4.w), w4, acc[3]);
    }
    workgroupBarrier();
  }
  return acc;
}

@compute @workgroup_size(LANES * 8)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) t: u32,
) {
  let strip = wid.z * count.y + wid.y;
  let first = wid.x * ROWS;
  let acc = sums(strip, first, t);
  for (var r = 0u; r < 4; r++) { store_row(first + t / LANES * 4 + r, strip, t % LANES, acc[r]); }
}
