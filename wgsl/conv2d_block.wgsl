// Convolution: a lane computes PLACES consecutive output places for 4 * CHANNELS output channels, so that each weight serves
// all places and each input element all channels. The lanes of a workgroup share their channels. Weights are stored as
// [block of channels, input channel, tap, channel]. size = input height, width, output height, width; taps = kernel height,
// width, dilations; shift = strides, paddings; channels = input and output channels of a group, then of the tensors.
const WG: u32 = 64;  // plan: invocations per workgroup
const PLACES: u32 = 4;  // plan
const CHANNELS: u32 = 4;  // plan
const BIAS: u32 = 0;  // plan

struct Params {
  lanes: u32, per_block: u32, per_image: u32, low: f32, high: f32,
  size: vec4<u32>, taps: vec4<u32>, shift: vec4<u32>, channels: vec4<u32>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_w: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> t_bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let index = wid.y * count.x + wid.x;
  let block = index / params.per_block;
  let lane = index % params.per_block * WG + local;
  let blocks = (params.channels.y + 4 * CHANNELS - 1) / (4 * CHANNELS);  // of a group
  let group = block / blocks;
  if (lane >= params.lanes || group * params.channels.y >= params.channels.w) { return; }
  let image = lane / params.per_image;
  let first = lane % params.per_image * PLACES;
  let places = params.size.z * params.size.w;
  let inner = block % blocks * 4 * CHANNELS;  // the first channel, counted in the group
  let oc = group * params.channels.y + inner;
  var corner: array<vec2<i32>, PLACES>;
  var acc: array<array<vec4<f32>, PLACES>, CHANNELS>;
  for (var p = 0u; p < PLACES; p++) { // unroll
    let at = min(first + p, places - 1);
    corner[p] = vec2<i32>(vec2(at / params.size.w, at % params.size.w) * params.shift.xy) - vec2<i32>(params.shift.zw);
  }
  if (BIAS == 1) {
    for (var c = 0u; c < CHANNELS; c++) { // unroll
      var bias = vec4<f32>();
      for (var i = 0u; i < 4; i++) { // unroll
        bias[i] = t_bias[min(oc + c * 4 + i, params.channels.w - 1)];
      }
      for (var p = 0u; p < PLACES; p++) { // unroll
        acc[c][p] = bias;
      }
    }
  }
  var weight = block * params.channels.x * params.taps.x * params.taps.y * CHANNELS;
  let plane = params.size.x * params.size.y;
  var base = (image * params.channels.z + group * params.channels.x) * plane;
  for (var ic = 0u; ic < params.channels.x; ic++) {
    for (var ky = 0u; ky < params.taps.x; ky++) {
      for (var kx = 0u; kx < params.taps.y; kx++) {
        let tap = vec2<i32>(vec2(ky, kx) * params.taps.zw);
        var x: array<f32, PLACES>;
        for (var p = 0u; p < PLACES; p++) { // unroll
          let at = vec2<u32>(corner[p] + tap);  // before the image: very large
          let inside = at.x < params.size.x && at.y < params.size.y;
          x[p] = select(0.0, t_x[base + select(0, at.x * params.size.y + at.y, inside)], inside);
        }
        for (var c = 0u; c < CHANNELS; c++) { // unroll
          let w = t_w[weight + c];
          for (var p = 0u; p < PLACES; p++) { // unroll
            acc[c][p] = fma(w, vec4(x[p]), acc[c][p]);
          }
        }
        weight += CHANNELS;
      }
    }
    base += plane;
  }
  for (var c = 0u; c < CHANNELS; c++) { // unroll
    for (var i = 0u; i < 4; i++) { // unroll
      if (inner + c * 4 + i < params.channels.y) {
        let to = (image * params.channels.w + oc + c * 4 + i) * places + first;
        for (var p = 0u; p < PLACES; p++) { // unroll
          var y = acc[c][p][i];
          if (y < params.low) { y = params.low; }  // not clamp, which may turn NaN into a number
          if (y > params.high) { y = params.high; }
          if (first + p < places) { t_out[to + p] = y; }
        }
      }
    }
  }
}
