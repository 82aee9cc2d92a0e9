// Anchors of a grid: (x, y) of each cell, moved by `offset` and scaled by `stride`.
struct Params { count: u32, width: u32, stride: f32, offset: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let cell = i / 2u;
  var place = cell % params.width;
  if ((i & 1u) == 1u) { place = cell / params.width; }
  t_out[i] = (f32(place) + params.offset) * params.stride;
}
