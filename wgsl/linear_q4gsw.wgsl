// 4-bit linear of any shape, with the weights as in the file: a lane computes ROWS rows of one column. A word holds 8
// weights of a column. The last word may be padded, so x is not read past K.
const ROWS: u32 = 4;  // plan: rows per lane
const BIAS: u32 = 0;  // plan
struct Params { m: u32, n: u32, k: u32, group: u32, pitch: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_w: array<u32>;
@group(0) @binding(3) var<storage, read> t_scales: array<f32>;
@group(0) @binding(4) var<storage, read> t_bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  let n = i % params.n;
  let m0 = i / params.n * ROWS;
  if (m0 >= params.m) { return; }
  var acc: array<f32, ROWS>;
  let words = (params.k + 7u) / 8u;
  for (var j = 0u; j < words; j++) {
    let word = t_w[n * words + j];
    for (var b = 0u; b < min(8u, params.k - j * 8u); b++) {
      let k = j * 8u + b;
      let w = (f32((word >> (b * 4u)) & 15u) - 8.0) * t_scales[k / params.group * params.pitch + n];
      for (var r = 0u; r < ROWS; r++) {
        acc[r] = fma(w, t_x[min(m0 + r, params.m - 1u) * params.k + k], acc[r]);
      }
    }
  }
  var b = 0.0;
  if (BIAS == 1u) { b = t_bias[n]; }
  for (var r = 0u; r < ROWS; r++) {
    if (m0 + r < params.m) { t_out[(m0 + r) * params.n + n] = acc[r] + b; }
  }
}
