// Convolution, one output element per lane. size = input height, width, output height, width; taps = kernel height, width,
// dilations; shift = strides, paddings; channels = input and output channels of a group, then of the tensors.
const BIAS: u32 = 0;  // plan
const TRANSPOSED: u32 = 0;  // plan

struct Params {
  count: u32, low: f32, high: f32,
  size: vec4<u32>, taps: vec4<u32>, shift: vec4<u32>, channels: vec4<u32>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_w: array<f32>;
@group(0) @binding(3) var<storage, read> t_bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

// The input place that tap `tap` of output place `at` reads, or -1.
fn place(at: u32, tap: u32, stride: u32, pad: u32, dilation: u32, size: u32) -> i32 {
  var n: i32;
  if (TRANSPOSED == 1u) {
    n = i32(at + pad) - i32(tap * dilation);
    if (n < 0 || u32(n) % stride != 0u) { return -1; }
    n /= i32(stride);
  } else {
    n = i32(at * stride + tap * dilation) - i32(pad);
  }
  if (n < 0 || n >= i32(size)) { return -1; }
  return n;
}

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let ox = i % params.size.w;
  let oy = i / params.size.w % params.size.z;
  let plane = i / (params.size.w * params.size.z);
  let oc = plane % params.channels.w;
  let batch = plane / params.channels.w;
  let group = oc / params.channels.y;
  var acc = 0.0;
  if (BIAS == 1u) { acc = t_bias[oc]; }
  for (var ky = 0u; ky < params.taps.x; ky++) {
    let y = place(oy, ky, params.shift.x, params.shift.z, params.taps.z, params.size.x);
    if (y < 0) { continue; }
    for (var kx = 0u; kx < params.taps.y; kx++) {
      let x = place(ox, kx, params.shift.y, params.shift.w, params.taps.w, params.size.y);
      if (x < 0) { continue; }
      for (var c = 0u; c < params.channels.x; c++) {
        let ic = group * params.channels.x + c;
        var row = oc * params.channels.x + c;
        if (TRANSPOSED == 1u) { row = ic * params.channels.y + oc % params.channels.y; }
        let at = ((batch * params.channels.z + ic) * params.size.x + u32(y)) * params.size.y + u32(x);
        acc = fma(t_w[(row * params.taps.x + ky) * params.taps.y + kx], t_x[at], acc);
      }
    }
  }
  t_out[i] = clamp(acc, params.low, params.high);
}
