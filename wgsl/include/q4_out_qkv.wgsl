// Stores the rows of [queries, keys, values]: queries are rotated and kept for attention, keys are rotated and written to
// their cache, values are written to theirs (in the texels of sdpa_texture.wgsl).
// include: q4_texel
// include: cache_store
// include: slots
// include: rotary_pairs
struct Params { rows: u32, out_row: u32, pos_slot: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(5) var<storage, read> t_bias: array<vec4<f32>>;  // if BIAS
@group(0) @binding(6) var<storage, read> t_cos: array<f32>;
@group(0) @binding(7) var<storage, read> t_sin: array<f32>;
@group(0) @binding(8) var<storage, read_write> t_q: array<f32>;
@group(0) @binding(9) var t_kt: texture_storage_2d_array<rgba32float, write>;  // plan CACHE is rgba32float
@group(0) @binding(10) var t_vt: texture_storage_2d_array<rgba32float, write>;  // plan CACHE is rgba32float

fn store_row(row: u32, strip: u32, lane: u32, v: vec4<f32>) {
  if (row >= params.rows) { return; }
  var y = v;
  y += t_bias[strip * LANES + lane];  // if BIAS
  let n = (strip * LANES + lane) * 4;
  let pos = slot(params.pos_slot) + params.out_row + row;
  let i = n % D / 4;
  let head = n / D;
  if (head < HEADS) {
    let q = turn(y, i, pos);
    let at = (params.out_row + row) * HEADS * D + n;
    t_q[at] = q.x;
    t_q[at + 1] = q.y;
    t_q[at + 2] = q.z;
    t_q[at + 3] = q.w;
  } else if (head < HEADS + KV_HEADS) {
    let x = ((head - HEADS) * D4 + i) * 8 + pos % 8;
    textureStore(t_kt, vec2(x, pos / 8 % LAYER_ROWS), pos / (8 * LAYER_ROWS), rounded(turn(y, i, pos)));
  } else if (head < HEADS + 2 * KV_HEADS) {
    let x = ((head - HEADS - KV_HEADS) * 8 + pos % 8) * D4 + i;
    textureStore(t_vt, vec2(x, pos / 8 % LAYER_ROWS), pos / (8 * LAYER_ROWS), rounded(y));
  }
}
