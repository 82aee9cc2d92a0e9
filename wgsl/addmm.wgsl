// out = beta c + alpha a b, one output element per lane. c is read through its broadcast strides.
struct Params { count: u32, n: u32, k: u32, row: u32, col: u32, beta: f32, alpha: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_c: array<f32>;
@group(0) @binding(2) var<storage, read> t_a: array<f32>;
@group(0) @binding(3) var<storage, read> t_b: array<f32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let row = i / params.n;
  let col = i % params.n;
  var acc = 0.0;
  for (var k = 0u; k < params.k; k++) {
    acc = fma(t_a[row * params.k + k], t_b[k * params.n + col], acc);
  }
  t_out[i] = params.beta * t_c[row * params.row + col * params.col] + params.alpha * acc;
}
