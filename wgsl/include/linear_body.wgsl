// y = x w^T + bias for `cols` columns from `first` on: a lane computes ROWS rows of one output column, with params.k
// elements of type V in each. The file that includes this one has V and `added`.
const ROWS: u32 = 4;  // plan: rows per lane
const BIAS: u32 = 0;  // plan

struct Params { m: u32, n: u32, k: u32, first: u32, cols: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<V>;
@group(0) @binding(2) var<storage, read> t_w: array<V>;
@group(0) @binding(3) var<storage, read> t_bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  let n = i % params.cols;
  let m0 = i / params.cols * ROWS;
  if (m0 >= params.m) { return; }
  var acc: array<f32, ROWS>;
  for (var k = 0u; k < params.k; k++) {
    let w = t_w[n * params.k + k];
    for (var r = 0u; r < ROWS; r++) {
      acc[r] = added(acc[r], w, t_x[min(m0 + r, params.m - 1u) * params.k + k]);
    }
  }
  var b = 0.0;
  if (BIAS == 1u) { b = t_bias[params.first + n]; }
  for (var r = 0u; r < ROWS; r++) {
    if (m0 + r < params.m) { t_out[(m0 + r) * params.n + params.first + n] = acc[r] + b; }
  }
}
