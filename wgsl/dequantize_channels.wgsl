// (x - zero) * scale with the numbers of each element's channel: one element per lane.
const ZEROS: u32 = 1;  // plan
// include: lane_grid
struct Params { count: u32, channel: u32, channels: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<i32>;
@group(0) @binding(2) var<storage, read> t_scales: array<f32>;
@group(0) @binding(3) var<storage, read> t_zeros: array<i32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

fn run(i: u32) {
  if (i >= params.count) { return; }
  let c = i / params.channel % params.channels;
  var steps = t_x[i];
  if (ZEROS == 1) { steps -= t_zeros[c]; }
  t_out[i] = f32(steps) * t_scales[c];
}
