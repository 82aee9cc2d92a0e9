// y = x w^T + bias for f32 weights in strips of 32 columns, on software adapters with subgroups. A workgroup of 8 lanes computes
// ROWS rows of STRIPS strips, four columns per lane of each. Lane j loads element j of every 8 elements of a row and broadcasts
// it, because loads from storage are slow there; a weight is one texel for four columns. All texels of 8 elements are loaded
// first, so that a sum stays in registers for 8 products.
// include: strip_texel
const ROWS: u32 = 8;  // plan: rows per workgroup
const STRIPS: u32 = 1;  // plan: strips per workgroup
const EDGE: u32 = 0;  // plan: 1 if k is not a multiple of 8
const BIAS: u32 = 0;  // plan

struct Params { m: u32, n: u32, k: u32, across: u32, strips: u32 }  // across: workgroups per row of strips

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_x: array<f32>;
@group(0) @binding(3) var<storage, read> t_bias: array<f32>;  // if BIAS
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let index = wid.y * count.x + wid.x;
  let strip = index / params.across * STRIPS;
  let first = index % params.across * ROWS;
  if (strip >= params.strips) { return; }
  let blocks = (params.k + 7) / 8;
  var acc: array<array<vec4<f32>, ROWS>, STRIPS>;
  for (var b = 0u; b < blocks; b++) {
    let k = b * 8 + lane;
    var x: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) { // unroll
      x[r] = t_x[min(first + r, params.m - 1) * params.k + k];  // if EDGE == 0
      // if EDGE: x[r] = select(0.0, t_x[min(first + r, params.m - 1) * params.k + min(k, params.k - 1)], k < params.k);
    }
    var w: array<array<vec4<f32>, 8>, STRIPS>;
    for (var s = 0u; s < STRIPS; s++) { // unroll
      for (var j = 0u; j < 8; j++) { // unroll
        w[s][j] = texel(((strip + s) * blocks + b) * 8 + j, lane);
      }
    }
    for (var r = 0u; r < ROWS; r++) { // unroll
      for (var s = 0u; s < STRIPS; s++) { // unroll
        for (var j = 0u; j < 8; j++) { // unroll
          acc[s][r] = fma(vec4(subgroupBroadcast(x[r], j)), w[s][j], acc[s][r]);
        }
      }
    }
  }
  for (var s = 0u; s < STRIPS; s++) { // unroll
    let n = ((strip + s) * 8 + lane) * 4;
    for (var c = 0u; c < 4; c++) { // unroll
      if (n + c < params.n) {
        var bias = 0.0;
        bias = t_bias[n + c];  // if BIAS
        for (var r = 0u; r < ROWS; r++) { // unroll
          if (first + r < params.m) { t_out[(first + r) * params.n + n + c] = acc[s][r][c] + bias; }
        }
      }
    }
  }
}
