// out = a b for each of a batch of matrices, or beta c + alpha a b if ADDED, with c read through its broadcast strides. A lane
// computes ROWS rows of four columns.
const ROWS: u32 = 4;  // plan: rows per lane
const ADDED: u32 = 0;  // plan
const VEC: u32 = 0;  // plan: 1 if rows of b are whole vectors

struct Params { batches: u32, m: u32, n: u32, k: u32, row: u32, col: u32, beta: f32, alpha: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_a: array<f32>;
@group(0) @binding(2) var<storage, read> t_b: array<f32>;  // if VEC == 0
// if VEC: @group(0) @binding(2) var<storage, read> t_b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> t_c: array<f32>;  // if ADDED
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

// include: four_columns
// include: lane_grid
fn run(i: u32) {
  let across = (params.n + 3u) / 4u;
  let down = (params.m + ROWS - 1u) / ROWS;
  let batch = i / (across * down);
  if (batch >= params.batches) { return; }
  let col = i % across * 4u;
  let first = i / across % down * ROWS;
  var acc: array<vec4<f32>, ROWS>;
  for (var k = 0u; k < params.k; k++) {
    let b = four((batch * params.k + k) * params.n, col);
    for (var r = 0u; r < ROWS; r++) { // unroll
      let a = t_a[(batch * params.m + min(first + r, params.m - 1u)) * params.k + k];
      acc[r] = fma(vec4(a), b, acc[r]);
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    for (var j = 0u; j < 4u; j++) { // unroll
      let row = first + r;
      if (row < params.m && col + j < params.n) {
        var y = acc[r][j];
        y = params.beta * t_c[row * params.row + (col + j) * params.col] + params.alpha * y;  // if ADDED
        t_out[(batch * params.m + row) * params.n + col + j] = y;
      }
    }
  }
}
