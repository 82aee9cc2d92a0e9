// (x - mean) * rstd * weight + bias with the values of each element's channel: one element per lane.
const WEIGHT: u32 = 1;  // plan
const BIAS: u32 = 1;  // plan
// include: lane_grid
struct Params { count: u32, channel: u32, channels: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_mean: array<f32>;
@group(0) @binding(3) var<storage, read> t_var: array<f32>;
@group(0) @binding(4) var<storage, read> t_weight: array<f32>;
@group(0) @binding(5) var<storage, read> t_bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> t_out: array<f32>;

fn run(i: u32) {
  if (i >= params.count) { return; }
  let c = i / params.channel % params.channels;
  var y = (t_x[i] - t_mean[c]) * inverseSqrt(t_var[c] + params.eps);
  if (WEIGHT == 1) { y *= t_weight[c]; }
  if (BIAS == 1) { y += t_bias[c]; }
  t_out[i] = y;
}
