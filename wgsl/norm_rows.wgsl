// RMS norm of rows into a texture, from another texture (STAGED) or, for few rows, from a uniform window. Each of eight
// lanes takes one texel of every 32 k. ROWS rows share the loads of the weight.
// include: sum8_subgroup
const K: u32 = 64;  // plan: elements per row
const ROWS: u32 = 4;  // plan: rows per workgroup
const STAGED_ROWS: u32 = 64;  // plan: rows per layer of the textures
const WINDOW: u32 = 4;  // plan: rows in the window, 0 if STAGED

struct Params { eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var t_x: texture_storage_2d_array<rgba32float, read>;  // if STAGED
// if STAGED == 0: @group(0) @binding(1) var<uniform> t_x: array<vec4<f32>, WINDOW * K / 4>;
@group(0) @binding(2) var<uniform> t_norm: array<vec4<f32>, K / 4>;
@group(0) @binding(3) var t_out: texture_storage_2d_array<rgba32float, write>;

fn load(i: u32, row: u32) -> vec4<f32> {
  return textureLoad(t_x, vec2(i, row % STAGED_ROWS), row / STAGED_ROWS);  // if STAGED
  // if STAGED == 0: return t_x[row * (K / 4) + i];
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first = wid.x * ROWS;
  var f: array<f32, ROWS>;
  for (var i = lane; i < K / 4; i += 8) {
    for (var r = 0u; r < ROWS; r++) { // unroll
      let x = load(i, first + r);
      f[r] += dot(x, x);
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    f[r] = inverseSqrt(sum8(f[r]) / f32(K) + params.eps);
  }
  for (var i = lane; i < K / 4; i += 8) {
    let weight = t_norm[i];
    for (var r = 0u; r < ROWS; r++) { // unroll
      let row = first + r;
      textureStore(t_out, vec2(i, row % STAGED_ROWS), row / STAGED_ROWS, load(i, row) * f[r] * weight);
    }
  }
}
