// Copies rows into a cache, starting at the live position.
// include: slots
struct Params { count: u32, row: u32, pos_slot: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_x: array<f32>;
@group(0) @binding(3) var<storage, read_write> t_cache: array<f32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = (wid.y * count.x + wid.x) * WG + lane;
  if (i >= params.count) { return; }
  t_cache[slot(params.pos_slot) * params.row + i] = t_x[i];
}
