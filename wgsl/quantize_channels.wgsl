// x / scale + zero as an integer from low to high, with the numbers of each element's channel: one element per lane.
const ZEROS: u32 = 1;  // plan: 0 if all zero points are 0
const TOGETHER: u32 = 0;  // plan: 1 if the sum is rounded, 0 if the quotient is
// include: lane_grid
struct Params { count: u32, channel: u32, channels: u32, low: f32, high: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_scales: array<f32>;
@group(0) @binding(3) var<storage, read> t_zeros: array<i32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<i32>;

fn run(i: u32) {
  if (i >= params.count) { return; }
  let c = i / params.channel % params.channels;
  var zero = 0.0;
  if (ZEROS == 1) { zero = f32(t_zeros[c]); }
  var steps = t_x[i] * (1.0 / t_scales[c]);
  if (TOGETHER == 1) { steps = round(steps + zero); } else { steps = round(steps) + zero; }
  t_out[i] = i32(clamp(steps, params.low, params.high));
}
