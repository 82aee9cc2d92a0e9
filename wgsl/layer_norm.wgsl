// One workgroup per row: the mean, the variance about it, then (x - mean) * rstd * weight + bias.
const WEIGHT: u32 = 1;  // plan
const BIAS: u32 = 1;  // plan

struct Params { rows: u32, width: u32, channel: u32, channels: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_weight: array<f32>;
@group(0) @binding(3) var<storage, read> t_bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;
@group(0) @binding(5) var<storage, read_write> t_mean: array<f32>;
@group(0) @binding(6) var<storage, read_write> t_rstd: array<f32>;

// include: workgroup_sum
// include: row_grid
fn run(row: u32, lane: u32) {
  if (row >= params.rows) { return; }
  let base = row * params.width;
  var sum = 0.0;
  for (var i = lane; i < params.width; i += WG) { sum += t_x[base + i]; }
  let mean = total(sum, lane) / f32(params.width);
  var square = 0.0;
  for (var i = lane; i < params.width; i += WG) {
    let d = t_x[base + i] - mean;
    square = fma(d, d, square);
  }
  let rstd = inverseSqrt(total(square, lane) / f32(params.width) + params.eps);
  for (var i = lane; i < params.width; i += WG) {
    let c = (base + i) / params.channel % params.channels;
    var y = (t_x[base + i] - mean) * rstd;
    if (WEIGHT == 1u) { y *= t_weight[c]; }
    if (BIAS == 1u) { y += t_bias[c]; }
    t_out[base + i] = y;
  }
  if (lane == 0u) {
    t_mean[row] = mean;
    t_rstd[row] = rstd;
  }
}
