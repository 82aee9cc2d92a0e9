// out = EXPR of a and b, each read through its broadcast strides.
struct Params {
  count: u32,
  rank: u32,
  first: f32,
  second: f32,
  int_first: i32,
  int_second: i32,
  dims: array<vec4<u32>, 2>,
  a_strides: array<vec4<u32>, 2>,
  b_strides: array<vec4<u32>, 2>,
}

// include: binary_body
fn run(i: u32) {
  if (i >= params.count) { return; }
  var left = i;
  var at_a = 0u;
  var at_b = 0u;
  for (var r = params.rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.dims[d >> 2u][d & 3u];
    let k = left % size;
    left /= size;
    at_a += k * params.a_strides[d >> 2u][d & 3u];
    at_b += k * params.b_strides[d >> 2u][d & 3u];
  }
  put(i, at_a, at_b);
}
