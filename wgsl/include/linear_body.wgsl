// y = x w^T + bias for `cols` columns from `first` on: a lane computes ROWS rows of COLS output columns, with params.k
// elements of type V in each, so that each element that is loaded is used several times. The file that includes this one
// has V and `added`.
const ROWS: u32 = 4;  // plan: rows per lane
const COLS: u32 = 2;  // plan: columns per lane
const BIAS: u32 = 0;  // plan

struct Params { m: u32, n: u32, k: u32, first: u32, cols: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<V>;
@group(0) @binding(2) var<storage, read> t_w: array<V>;
@group(0) @binding(3) var<storage, read> t_bias: array<f32>;  // if BIAS
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  let across = (params.cols + COLS - 1u) / COLS;
  let n = i % across * COLS;
  let m = i / across * ROWS;
  if (m >= params.m) { return; }
  var acc: array<array<f32, COLS>, ROWS>;
  for (var k = 0u; k < params.k; k++) {
    var x: array<V, ROWS>;
    for (var r = 0u; r < ROWS; r++) { // unroll
      x[r] = t_x[min(m + r, params.m - 1u) * params.k + k];
    }
    for (var c = 0u; c < COLS; c++) { // unroll
      let w = t_w[min(n + c, params.cols - 1u) * params.k + k];
      for (var r = 0u; r < ROWS; r++) { // unroll
        acc[r][c] = added(acc[r][c], w, x[r]);
      }
    }
  }
  for (var c = 0u; c < COLS; c++) { // unroll
    if (n + c < params.cols) {
      var bias = 0.0;
      bias = t_bias[params.first + n + c];  // if BIAS
      for (var r = 0u; r < ROWS; r++) { // unroll
        if (m + r < params.m) { t_out[(m + r) * params.n + params.first + n + c] = acc[r][c] + bias; }
      }
    }
  }
}
