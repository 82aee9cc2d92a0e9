// Stores one row of [queries, keys, values], as q4_out_qkv.wgsl does, where caches are buffers of rows [position, key head, D].
// Each of the three begins with a new strip. A cell of a cache holds four elements, as f32 or packed as f16.
// include: q4_texel
// include: slots
// include: rotary_pairs
struct Params { rows: u32, out_row: u32, pos_slot: u32, eps: f32 }

const HEADS: u32 = 4;  // plan: query heads
const KV_HEADS: u32 = 2;  // plan: key heads
const D: u32 = 64;  // plan: head_dim
const Q_STRIPS: u32 = 4;  // plan: strips of the queries
const KV_STRIPS: u32 = 2;  // plan: strips of the keys, and of the values
alias CELL = vec4<f32>;  // plan

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(5) var<storage, read> t_bias: array<vec4<f32>>;  // if BIAS
@group(0) @binding(6) var<storage, read> t_cos: array<vec2<f32>>;
@group(0) @binding(7) var<storage, read> t_sin: array<vec2<f32>>;
@group(0) @binding(8) var<storage, read_write> t_q: array<vec4<f32>>;
@group(0) @binding(9) var<storage, read_write> t_kc: array<CELL>;
@group(0) @binding(10) var<storage, read_write> t_vc: array<CELL>;

const D4: u32 = D / 4;

fn cell(v: vec4<f32>) -> CELL {
  return v;  // plan PACK is v
}

fn store_row(row: u32, strip: u32, lane: u32, v: vec4<f32>) {
  if (row >= params.rows) { return; }
  var y = v;
  y += t_bias[strip * LANES + lane];  // if BIAS
  let at = params.out_row + row;
  let pos = slot(params.pos_slot) + at;
  if (strip < Q_STRIPS) {
    let i = strip * LANES + lane;
    if (i < HEADS * D4) { t_q[at * HEADS * D4 + i] = turn(y, i % D4, pos); }
  } else if (strip < Q_STRIPS + KV_STRIPS) {
    let i = (strip - Q_STRIPS) * LANES + lane;
    if (i < KV_HEADS * D4) { t_kc[pos * KV_HEADS * D4 + i] = cell(turn(y, i % D4, pos)); }
  } else {
    let i = (strip - Q_STRIPS - KV_STRIPS) * LANES + lane;
    if (i < KV_HEADS * D4) { t_vc[pos * KV_HEADS * D4 + i] = cell(y); }
  }
}
