// Convolution with f32 weights in strips of 32 output channels, on software adapters with subgroups. A workgroup of 8 lanes
// computes STRIPS strips at PLACES consecutive places of one image: lane j loads the input of place j and broadcasts it, and
// owns four channels of each strip. k of the weights counts input channels inside taps. size = input height, width, output
// height, width; taps = kernel height, width, dilations; shift = strides, paddings; channels = input and output channels of a
// group, then of the tensors.
// include: strip_texel
const STRIPS: u32 = 1;  // plan: strips per workgroup
const PLACES: u32 = 8;  // plan: places per workgroup, at most 8
const DEEP: u32 = 1;  // plan: input channels loaded together; divides the input channels of a group
const BIAS: u32 = 0;  // plan

struct Params {
  per_image: u32, per_strip: u32, strips: u32, low: f32, high: f32,  // workgroups per image and per strip; strips per group
  size: vec4<u32>, taps: vec4<u32>, shift: vec4<u32>, channels: vec4<u32>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_x: array<f32>;
@group(0) @binding(3) var<storage, read> t_bias: array<f32>;  // if BIAS
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let index = wid.y * count.x + wid.x;
  let strip = index / params.per_strip * STRIPS;  // counted over all groups
  let group = strip / params.strips;
  if (group * params.channels.y >= params.channels.w) { return; }
  let image = index % params.per_strip / params.per_image;
  let first = index % params.per_image * PLACES;  // per_strip is a multiple of per_image
  let places = params.size.z * params.size.w;
  let at = min(first + lane, places - 1);
  let corner = vec2<i32>(vec2(at / params.size.w, at % params.size.w) * params.shift.xy) - vec2<i32>(params.shift.zw);
  let plane = params.size.x * params.size.y;
  let base = (image * params.channels.z + group * params.channels.x) * plane;
  let depth = (params.channels.x * params.taps.x * params.taps.y + 7) / 8 * 8;
  var line = strip * depth;
  var acc: array<array<vec4<f32>, PLACES>, STRIPS>;
  for (var ky = 0u; ky < params.taps.x; ky++) {
    for (var kx = 0u; kx < params.taps.y; kx++) {
      let tap = vec2<u32>(corner + vec2<i32>(vec2(ky, kx) * params.taps.zw));  // before the image: very large
      let inside = tap.x < params.size.x && tap.y < params.size.y;
      var from_x = base + select(0, tap.x * params.size.y + tap.y, inside);
      for (var ic = 0u; ic < params.channels.x; ic += DEEP) {
        var input: array<f32, DEEP>;
        var w: array<array<vec4<f32>, DEEP>, STRIPS>;
        for (var i = 0u; i < DEEP; i++) { // unroll
          input[i] = select(0.0, t_x[from_x + i * plane], inside);
          for (var s = 0u; s < STRIPS; s++) { // unroll
            w[s][i] = texel(line + i + s * depth, lane);
          }
        }
        for (var p = 0u; p < PLACES; p++) { // unroll
          for (var s = 0u; s < STRIPS; s++) { // unroll
            for (var i = 0u; i < DEEP; i++) { // unroll
              acc[s][p] = fma(vec4(subgroupBroadcast(input[i], p)), w[s][i], acc[s][p]);
            }
          }
        }
        from_x += DEEP * plane;
        line += DEEP;
      }
    }
  }
  for (var s = 0u; s < STRIPS; s++) { // unroll
    let inner = ((strip + s) % params.strips * 8 + lane) * 4;  // the lane's first channel, counted in the group
    let oc = group * params.channels.y + inner;
    for (var c = 0u; c < 4; c++) { // unroll
      if (inner + c < params.channels.y) {
        var bias = 0.0;
        bias = t_bias[oc + c];  // if BIAS
        let to = (image * params.channels.w + oc + c) * places + first;
        for (var p = 0u; p < PLACES; p++) { // unroll
          var y = acc[s][p][c] + bias;
          if (y < params.low) { y = params.low; }  // not clamp, which may turn NaN into a number
          if (y > params.high) { y = params.high; }
          if (first + p < places) { t_out[to + p] = y; }
        }
      }
    }
  }
}
