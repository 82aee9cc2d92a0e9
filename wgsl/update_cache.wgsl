// Copies rows into a cache, starting at the live position.
// include: slots
struct Params { count: u32, row: u32, pos_slot: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_x: array<f32>;
@group(0) @binding(3) var<storage, read_write> t_cache: array<f32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  t_cache[slot(params.pos_slot) * params.row + i] = t_x[i];
}
