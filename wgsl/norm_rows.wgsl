// RMS norm of rows: rows times the norm's weight go into a texture, and the factor of each row into a buffer, because the linear
// applies it to its sums, as it does where it normalises rows itself. Rows come from another texture (STAGED) or, if there are
// few, from a uniform window. Each of eight lanes takes one texel of every 32 k. ROWS rows share the loads of the weight.
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
@group(0) @binding(4) var<storage, read_write> t_factors: array<f32>;

fn load(i: u32, row: u32) -> vec4<f32> {
  return textureLoad(t_x, vec2(i, row % STAGED_ROWS), row / STAGED_ROWS);  // if STAGED
  // if STAGED == 0: return t_x[row * (K / 4) + i];
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first = wid.x * ROWS;
  var squares: array<f32, ROWS>;
  for (var i = lane; i < K / 4; i += 8) {
    let weight = t_norm[i];
    for (var r = 0u; r < ROWS; r++) { // unroll
      let row = first + r;
      let x = load(i, row);
      squares[r] += dot(x, x);
      textureStore(t_out, vec2(i, row % STAGED_ROWS), row / STAGED_ROWS, x * weight);
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    let f = inverseSqrt(sum8(squares[r]) / f32(K) + params.eps);
    if (lane == 0) { t_factors[first + r] = f; }
  }
}
