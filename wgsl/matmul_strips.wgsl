// out = a b for each of a batch of matrices, or beta c + alpha a b if ADDED, with c read through its broadcast strides. For
// software adapters with subgroups: a workgroup of 8 lanes computes ROWS rows of 32 columns, four columns per lane. Lane j
// loads element j of every 8 elements of a row of a and broadcasts it, because loads from storage are slow there. All of b
// that these 8 elements need is loaded first, so that a sum stays in registers for 8 products.
const ROWS: u32 = 8;  // plan: rows per workgroup
const ADDED: u32 = 0;  // plan
const VEC: u32 = 0;  // plan: 1 if rows of b are whole vectors
const EDGE: u32 = 1;  // plan: 1 if k is not a multiple of 8

struct Params { batches: u32, m: u32, n: u32, k: u32, row: u32, col: u32, beta: f32, alpha: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_a: array<f32>;
@group(0) @binding(2) var<storage, read> t_b: array<f32>;  // if VEC == 0
// if VEC: @group(0) @binding(2) var<storage, read> t_b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> t_c: array<f32>;  // if ADDED
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

// include: four_columns
@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let index = wid.y * count.x + wid.x;
  let across = (params.n + 31) / 32;
  let down = (params.m + ROWS - 1) / ROWS;
  let batch = index / (across * down);
  if (batch >= params.batches) { return; }
  let col = (index % across * 8 + lane) * 4;
  let first = index / across % down * ROWS;
  var acc: array<vec4<f32>, ROWS>;
  for (var k = 0u; k < params.k; k += 8) {
    var a: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) { // unroll
      let x = t_a[(batch * params.m + min(first + r, params.m - 1)) * params.k + min(k + lane, params.k - 1)];
      a[r] = select(0.0, x, EDGE == 0 || k + lane < params.k);
    }
    var b: array<vec4<f32>, 8>;
    for (var j = 0u; j < 8; j++) { // unroll
      if (EDGE == 0 || k + j < params.k) { b[j] = four((batch * params.k + k + j) * params.n, min(col, params.n - 1)); }
    }
    for (var r = 0u; r < ROWS; r++) { // unroll
      for (var j = 0u; j < 8; j++) { // unroll
        acc[r] = fma(vec4(subgroupBroadcast(a[r], j)), b[j], acc[r]);
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    for (var j = 0u; j < 4; j++) { // unroll
      let row = first + r;
      if (row < params.m && col + j < params.n) {
        var y = acc[r][j];
        y = params.beta * t_c[row * params.row + (col + j) * params.col] + params.alpha * y;  // if ADDED
        t_out[(batch * params.m + row) * params.n + col + j] = y;
      }
    }
  }
}
