// Stores the rows of [queries, keys, values]: queries are rotated and kept for attention, keys are rotated and written to
// their cache, values are written to theirs (in the texels of sdpa_texture.wgsl).
// include: q4_texel
// include: cache_store
// include: row_place
// include: rotary_pairs
struct Params { rows: u32, out_row: u32, pos_slot: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(5) var<storage, read> t_bias: array<vec4<f32>>;  // if BIAS
@group(0) @binding(6) var<storage, read> t_cos: array<vec2<f32>>;
@group(0) @binding(7) var<storage, read> t_sin: array<vec2<f32>>;
@group(0) @binding(8) var<storage, read_write> t_q: array<vec4<f32>>;
@group(0) @binding(9) var t_kt: texture_storage_2d_array<rgba32float, write>;  // plan CACHE is rgba32float
@group(0) @binding(10) var t_vt: texture_storage_2d_array<rgba32float, write>;  // plan CACHE is rgba32float

// A software adapter executes every branch, so what two of them need is computed once, before.
fn store_row(row: u32, strip: u32, lane: u32, v: vec4<f32>) {
  if (row >= params.rows) { return; }
  var y = v;
  y += t_bias[strip * LANES + lane];  // if BIAS
  let n = (strip * LANES + lane) * 4;
  let place = place_of(params.out_row + row);
  let block = block_of(place, place.position);
  let texel = vec2(block % LAYER_ROWS, block / LAYER_ROWS);
  let p = place.position % 8;
  let i = n % D / 4;
  let head = n / D;
  let turned = turn(y, i, place.position);
  if (head < HEADS) {
    t_q[(params.out_row + row) * HEADS * D4 + n / 4] = turned;
  } else if (head < HEADS + KV_HEADS) {
    textureStore(t_kt, vec2(((head - HEADS) * D4 + i) * 8 + p, texel.x), texel.y, rounded(turned));
  } else if (head < HEADS + 2 * KV_HEADS) {
    textureStore(t_vt, vec2(((head - HEADS - KV_HEADS) * 8 + p) * D4 + i, texel.x), texel.y, rounded(y));
  }
}
