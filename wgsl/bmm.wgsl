// out[b] = a[b] b[b], one output element per lane.
struct Params { count: u32, m: u32, n: u32, k: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_a: array<f32>;
@group(0) @binding(2) var<storage, read> t_b: array<f32>;
@group(0) @binding(3) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let col = i % params.n;
  let row = i / params.n;
  let batch = row / params.m;
  var acc = 0.0;
  for (var k = 0u; k < params.k; k++) {
    acc = fma(t_a[row * params.k + k], t_b[(batch * params.k + k) * params.n + col], acc);
  }
  t_out[i] = acc;
}
