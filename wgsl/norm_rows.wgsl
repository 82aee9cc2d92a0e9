// RMS norm of rows: rows times the norm's weight, and the factor of each row, which the linear applies to its sums, as it does
// where it normalises rows itself. Few rows go from a uniform window into a texture. MANY rows go into a buffer, which is then
// copied into a texture: on a software adapter a store into a texture costs several times one into a buffer. Each of eight
// lanes takes one texel of every 32 k. ROWS rows share the loads of the weight. A workgroup has GROUPS of eight lanes.
// include: sum8_subgroup
const K: u32 = 64;  // plan: elements per row
const ROWS: u32 = 4;  // plan: rows per group
const GROUPS: u32 = 1;  // plan
const MANY: u32 = 0;  // plan: 1 if rows are in buffers
const STAGED_ROWS: u32 = 64;  // plan: rows per layer of the texture
const WINDOW: u32 = 4;  // plan: rows in the window

struct Params { rows: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<vec4<f32>>;  // if MANY
// if MANY == 0: @group(0) @binding(1) var<uniform> t_x: array<vec4<f32>, WINDOW * K / 4>;
@group(0) @binding(2) var<uniform> t_norm: array<vec4<f32>, K / 4>;
@group(0) @binding(3) var<storage, read_write> t_out: array<vec4<f32>>;  // if MANY
// if MANY == 0: @group(0) @binding(3) var t_out: texture_storage_2d_array<rgba32float, write>;
@group(0) @binding(4) var<storage, read_write> t_factors: array<f32>;

fn store(i: u32, row: u32, y: vec4<f32>) {
  t_out[row * (K / 4) + i] = y;  // if MANY
  // if MANY == 0: textureStore(t_out, vec2(i, row % STAGED_ROWS), row / STAGED_ROWS, y);
}

@compute @workgroup_size(8 * GROUPS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let lane = local % 8;
  let first = (wid.x * GROUPS + local / 8) * ROWS;
  var squares: array<f32, ROWS>;
  for (var i = lane; i < K / 4; i += 8) {
    let weight = t_norm[i];
    for (var r = 0u; r < ROWS; r++) { // unroll
      let row = min(first + r, params.rows - 1);
      let x = t_x[row * (K / 4) + i];
      squares[r] += dot(x, x);
      store(i, row, x * weight);
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    let f = inverseSqrt(sum8(squares[r]) / f32(K) + params.eps);
    if (lane == 0) { t_factors[min(first + r, params.rows - 1)] = f; }
  }
}
