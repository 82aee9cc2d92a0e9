// Stores the keys and values of a batch in textures. A row holds eight positions, as in rope_cache_texture.wgsl.
// include: rows_lanes
const LAYER_ROWS: u32 = 16;  // plan
@group(0) @binding(7) var t_kt: texture_storage_2d_array<rgba32float, write>;  // plan CACHE is rgba32float
@group(0) @binding(8) var t_vt: texture_storage_2d_array<rgba32float, write>;  // plan CACHE is rgba32float

fn held(v: vec4<f32>) -> vec4<f32> {
  return v;  // plan HELD is v
}
fn store_key(block: u32, p: u32, head: u32, i: u32, v: vec4<f32>) {
  textureStore(t_kt, vec2((head * D4 + i) * 8 + p, block % LAYER_ROWS), block / LAYER_ROWS, held(v));
}
fn store_value(block: u32, p: u32, head: u32, i: u32, v: vec4<f32>) {
  textureStore(t_vt, vec2((head * 8 + p) * D4 + i, block % LAYER_ROWS), block / LAYER_ROWS, held(v));
}
