// Lanes that store the keys of a batch, rotated, and then those that store the values: four elements of a head each.
struct Params { quads: u32, pos_slot: u32 }
@group(0) @binding(0) var<uniform> params: Params;
// include: rows_cache
@group(0) @binding(6) var<storage, read> t_v: array<vec4<f32>>;

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
