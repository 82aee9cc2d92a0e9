// Rotates queries into scratch and keys into their cache, and copies values into theirs: four elements of a head per lane.
// Rotary pairs are (2i, 2i+1), or with HALVES (i, i + width/2). The tables are read at the live position if ABSOLUTE.
// The caches are textures with eight positions per row, because the eight lanes of sdpa_texture.wgsl read neighbours.
// include: cache_store
// include: row_place
struct Params { quads_q: u32, quads_k: u32, pos_slot: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_xq: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> t_xk: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> t_v: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> t_cos: array<f32>;
@group(0) @binding(6) var<storage, read> t_sin: array<f32>;
@group(0) @binding(7) var<storage, read_write> t_q: array<vec4<f32>>;
@group(0) @binding(8) var t_kt: texture_storage_2d_array<rgba32float, write>;  // plan CACHE is rgba32float
@group(0) @binding(9) var t_vt: texture_storage_2d_array<rgba32float, write>;  // plan CACHE is rgba32float

const TABLE: u32 = 32;  // plan: columns of the cosine and sine tables
const ABSOLUTE: u32 = 1;  // plan: 1 if the tables are read at the live position
const HALVES: u32 = 0;  // plan: 1 if the tables pair the halves of a head
const HALF4: u32 = TABLE / 8;  // vec4s in half of a head

fn four(at: u32, sine: bool) -> vec4<f32> {
  if (sine) { return vec4(t_sin[at], t_sin[at + 1], t_sin[at + 2], t_sin[at + 3]); }
  return vec4(t_cos[at], t_cos[at + 1], t_cos[at + 2], t_cos[at + 3]);
}

fn table_row(row: u32) -> u32 { return select(row, place_of(row).position, ABSOLUTE == 1); }

// Rotates x, elements 4 i to 4 i + 3 of a head, by a row of the tables; `partner` has the other elements of their pairs.
fn turn(x: vec4<f32>, partner: vec4<f32>, row: u32, i: u32) -> vec4<f32> {
  if (HALVES == 1) {
    if (i >= 2 * HALF4) { return x; }
    let at = row * TABLE + i * 4;
    return x * four(at, false) + partner * four(at, true) * select(1.0, -1.0, i < HALF4);
  }
  let at = row * TABLE + i * 2;
  let c = vec2(t_cos[at], t_cos[at + 1]);
  let s = vec2(t_sin[at], t_sin[at + 1]);
  return vec4(x.x * c.x - x.y * s.x, x.x * s.x + x.y * c.x, x.z * c.y - x.w * s.y, x.z * s.y + x.w * c.y);
}

// Where the partner of four elements is.
fn other(at: u32) -> u32 {
  let i = at % D4;
  if (HALVES == 0 || i >= 2 * HALF4) { return at; }
  return select(at - HALF4, at + HALF4, i < HALF4);
}

// include: lane_grid
fn run(lane: u32) {
  var at = lane;
  if (at < params.quads_q) {
    t_q[at] = turn(t_xq[at], t_xq[other(at)], table_row(at / (D4 * HEADS)), at % D4);
    return;
  }
  at -= params.quads_q;
  let values = at >= params.quads_k;
  at -= select(0, params.quads_k, values);
  if (at >= params.quads_k) { return; }
  let i = at % D4;
  let head = at / D4 % KV_HEADS;
  let row = at / (D4 * KV_HEADS);
  let place = place_of(row);
  let p = place.position;
  let block = block_of(place, p);
  if (values) {
    textureStore(t_vt, vec2((head * 8 + p % 8) * D4 + i, block % LAYER_ROWS), block / LAYER_ROWS, rounded(t_v[at]));
  } else {
    let k = turn(t_xk[at], t_xk[other(at)], table_row(row), i);
    textureStore(t_kt, vec2((head * D4 + i) * 8 + p % 8, block % LAYER_ROWS), block / LAYER_ROWS, rounded(k));
  }
}
