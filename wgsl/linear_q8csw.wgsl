// 8-bit activations times 8-bit weights with one scale per column, summed in integers: one output per lane.
const BIAS: u32 = 0;  // plan
// include: lane_grid
struct Params { count: u32, n: u32, k: u32, zero: i32, scale: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<i32>;
@group(0) @binding(2) var<storage, read> t_w: array<i32>;  // four bytes a word, rows in whole words
@group(0) @binding(3) var<storage, read> t_scales: array<f32>;
@group(0) @binding(4) var<storage, read> t_bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> t_out: array<f32>;

fn run(i: u32) {
  if (i >= params.count) { return; }
  let n = i % params.n;
  let row = i / params.n * params.k;
  let words = (params.k + 3u) / 4u;
  var sum = 0;
  for (var k = 0u; k < params.k; k++) {
    let w = extractBits(t_w[n * words + k / 4u], k % 4u * 8u, 8u);
    sum += (t_x[row + k] - params.zero) * w;
  }
  var y = f32(sum) * (params.scale * t_scales[n]);
  if (BIAS == 1) { y += t_bias[n]; }
  t_out[i] = y;
}
