// Convolution of 8-bit numbers, one output element per lane: summed in integers, then quantized again. The parameters
// are those of conv2d.wgsl; a row of the weight is [height, width, input channels of the group], padded to whole words.
// With FLOATS the input and the output are floats: the input is quantized where it is read, and `inverse` is for it.
const BIAS: u32 = 0;  // plan
const RELU: u32 = 0;  // plan
const TRANSPOSED: u32 = 0;  // plan
const FLOATS: u32 = 0;  // plan
alias T = i32;  // plan

struct Params {
  count: u32, words: u32, zero: i32, out_zero: i32, scale: f32, inverse: f32,
  size: vec4<u32>, taps: vec4<u32>, shift: vec4<u32>, channels: vec4<u32>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<T>;
@group(0) @binding(2) var<storage, read> t_w: array<i32>;
@group(0) @binding(3) var<storage, read> t_scales: array<f32>;
@group(0) @binding(4) var<storage, read> t_bias: array<f32>;  // if BIAS
@group(0) @binding(5) var<storage, read_write> t_out: array<T>;

fn quantized(x: f32, zero: i32) -> i32 { return i32(clamp(round(x * params.inverse) + f32(zero), -128.0, 127.0)); }

// include: conv_place
// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let ox = i % params.size.w;
  let oy = i / params.size.w % params.size.z;
  let plane = i / (params.size.w * params.size.z);
  let oc = plane % params.channels.w;
  let batch = plane / params.channels.w;
  let first = batch * params.channels.z + oc / params.channels.y * params.channels.x;
  var sum = 0;
  for (var ky = 0u; ky < params.taps.x; ky++) {
    let y = place(oy, ky, params.shift.x, params.shift.z, params.taps.z, params.size.x);
    if (y < 0) { continue; }
    for (var kx = 0u; kx < params.taps.y; kx++) {
      let x = place(ox, kx, params.shift.y, params.shift.w, params.taps.w, params.size.y);
      if (x < 0) { continue; }
      for (var c = 0u; c < params.channels.x; c++) {
        let k = (ky * params.taps.y + kx) * params.channels.x + c;
        let w = extractBits(t_w[oc * params.words + k / 4u], k % 4u * 8u, 8u);
        let at = ((first + c) * params.size.x + u32(y)) * params.size.y + u32(x);
        let q = t_x[at];  // if FLOATS == 0
        // if FLOATS: let q = quantized(t_x[at], params.zero);
        sum += (q - params.zero) * w;
      }
    }
  }
  var v = f32(sum) * (params.scale * t_scales[oc]);
  v += t_bias[oc];  // if BIAS
  v = max(v, 0.0);  // if RELU
  // if FLOATS: t_out[i] = v;
  t_out[i] = quantized(v, params.out_zero);  // if FLOATS == 0
}
