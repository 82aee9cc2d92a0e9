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

// include: conv_place
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
    if (TRANSPOSED == 1u && y < 0) { continue; }
    for (var kx = 0u; kx < params.taps.y; kx++) {
      let x = place(ox, kx, params.shift.y, params.shift.w, params.taps.w, params.size.y);
      if (TRANSPOSED == 1u && x < 0) { continue; }
      let inside = y >= 0 && x >= 0;  // the padding is zeros
      for (var c = 0u; c < params.channels.x; c++) {
        let ic = group * params.channels.x + c;
        var row = oc * params.channels.x + c;
        if (TRANSPOSED == 1u) { row = ic * params.channels.y + oc % params.channels.y; }
        let at = ((batch * params.channels.z + ic) * params.size.x + u32(max(y, 0))) * params.size.y + u32(max(x, 0));
        acc = fma(t_w[(row * params.taps.x + ky) * params.taps.y + kx], select(0.0, t_x[at], inside), acc);
      }
    }
  }
  if (acc < params.low) { acc = params.low; }  // not clamp, which may turn NaN into a number
  if (acc > params.high) { acc = params.high; }
  t_out[i] = acc;
}
