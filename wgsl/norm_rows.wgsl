// Rows of one image normalised into another. Eight lanes have a texel each of every 32 k, of ROWS rows, which share the
// loads of the weight.
struct Params { eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var t_x: texture_storage_2d_array<rgba32float, read>;
@group(0) @binding(2) var<uniform> t_norm: array<vec4<f32>, K / 4>;
@group(0) @binding(3) var t_out: texture_storage_2d_array<rgba32float, write>;

fn sum8(v: f32) -> f32 {
  var s = v + subgroupShuffleXor(v, 1u);
  s += subgroupShuffleXor(s, 2u);
  return s + subgroupShuffleXor(s, 4u);
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first = wid.x * ROWS;  // of one layer: ROWS divides STAGED_ROWS
  let y = first % STAGED_ROWS;
  let layer = first / STAGED_ROWS;
  var f: array<f32, ROWS>;
  for (var i = lane; i < K / 4; i += 8) {
    for (var r = 0u; r < ROWS; r++) { // unroll
      let x = textureLoad(t_x, vec2(i, y + r), layer);
      f[r] += dot(x, x);
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    f[r] = inverseSqrt(sum8(f[r]) / f32(K) + params.eps);
  }
  for (var i = lane; i < K / 4; i += 8) {
    let weight = t_norm[i];
    for (var r = 0u; r < ROWS; r++) { // unroll
      textureStore(t_out, vec2(i, y + r), layer, textureLoad(t_x, vec2(i, y + r), layer) * f[r] * weight);
    }
  }
}
