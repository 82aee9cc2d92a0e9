// Float activations times 8-bit weights with one scale per column, for `cols` columns from `first` on: a lane computes
// ROWS rows of one column.
const ROWS: u32 = 4;  // plan: rows per lane
const BIAS: u32 = 0;  // plan

struct Params { m: u32, n: u32, k: u32, words: u32, first: u32, cols: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_w: array<i32>;  // four bytes in each word, rows in whole words
@group(0) @binding(3) var<storage, read> t_scales: array<f32>;
@group(0) @binding(4) var<storage, read> t_bias: array<f32>;  // if BIAS
@group(0) @binding(5) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  let n = i % params.cols;
  let m0 = i / params.cols * ROWS;
  if (m0 >= params.m) { return; }
  var acc: array<f32, ROWS>;
  for (var k = 0u; k < params.k; k += 4u) {
    let word = t_w[n * params.words + k / 4u];
    for (var j = 0u; j < min(4u, params.k - k); j++) {
      let w = f32(extractBits(word, j * 8u, 8u));
      for (var r = 0u; r < ROWS; r++) {
        acc[r] = fma(w, t_x[min(m0 + r, params.m - 1u) * params.k + k + j], acc[r]);
      }
    }
  }
  let scale = t_scales[params.first + n];
  var b = 0.0;
  b = t_bias[params.first + n];  // if BIAS
  for (var r = 0u; r < ROWS; r++) {
    if (m0 + r < params.m) { t_out[(m0 + r) * params.n + params.first + n] = acc[r] * scale + b; }
  }
}
