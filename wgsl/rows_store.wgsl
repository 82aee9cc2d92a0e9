// Stores the keys of a batch, rotated, and then its values in buffers: four elements of a head per lane.
struct Params { quads: u32, pos_slot: u32 }
@group(0) @binding(0) var<uniform> params: Params;
// include: rows_cache
@group(0) @binding(6) var<storage, read> t_v: array<vec4<f32>>;
alias CELL = vec4<f32>;  // plan: four elements of a cache
@group(0) @binding(7) var<storage, read_write> t_kc: array<CELL>;
@group(0) @binding(8) var<storage, read_write> t_vc: array<CELL>;

fn held(v: vec4<f32>) -> CELL {
  return v;  // plan HELD is v
}
fn store_key(block: u32, p: u32, head: u32, i: u32, v: vec4<f32>) {
  t_kc[((block * 8 + p) * KV_HEADS + head) * D4 + i] = held(v);
}
fn store_value(block: u32, p: u32, head: u32, i: u32, v: vec4<f32>) {
  t_vc[((block * 8 + p) * KV_HEADS + head) * D4 + i] = held(v);
}

// include: lane_grid
fn run(lane: u32) {
  let is_value = lane >= params.quads;
  let at = select(lane, lane - params.quads, is_value);
  if (at >= params.quads) { return; }
  let row = at / (D4 * KV_HEADS);
  let place = place_of(row);
  let p = place.position;
  if (is_value) {
    store_value(block_of(place, p), p % 8, at / D4 % KV_HEADS, at % D4, t_v[at]);
  } else {
    store_key(block_of(place, p), p % 8, at / D4 % KV_HEADS, at % D4, turned(at, p));
  }
}
