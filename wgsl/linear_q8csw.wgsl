// 8-bit activations times 8-bit weights with one scale per column, summed in integers: one output per lane.
const BIAS: u32 = 0;  // plan
const RELU: u32 = 0;  // plan
const QUANTIZED: u32 = 0;  // plan: 1 if the output is int8
alias OUT_T = f32;  // plan
// include: lane_grid
struct Params { count: u32, n: u32, k: u32, words: u32, zero: i32, scale: f32, inverse: f32, out_zero: i32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<i32>;
@group(0) @binding(2) var<storage, read> t_w: array<i32>;  // four bytes in each word, rows in whole words
@group(0) @binding(3) var<storage, read> t_scales: array<f32>;
@group(0) @binding(4) var<storage, read> t_bias: array<f32>;  // if BIAS
@group(0) @binding(5) var<storage, read_write> t_out: array<OUT_T>;

fn run(i: u32) {
  if (i >= params.count) { return; }
  let n = i % params.n;
  let row = i / params.n * params.k;
  var sum = 0;
  for (var k = 0u; k < params.k; k++) {
    let w = extractBits(t_w[n * params.words + k / 4u], k % 4u * 8u, 8u);
    sum += (t_x[row + k] - params.zero) * w;
  }
  var y = f32(sum) * (params.scale * t_scales[n]);
  y += t_bias[n];  // if BIAS
  y = max(y, 0.0);  // if RELU
  y = clamp(round(y * params.inverse) + f32(params.out_zero), -128.0, 127.0);  // if QUANTIZED
  t_out[i] = OUT_T(y);
}
