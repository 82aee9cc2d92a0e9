// out = a where cond is not zero, else b. Each is read through its broadcast strides.
struct Params {
  count: u32,
  rank: u32,
  dims: array<vec4<u32>, 2>,
  cond_strides: array<vec4<u32>, 2>,
  a_strides: array<vec4<u32>, 2>,
  b_strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_cond: array<u32>;
@group(0) @binding(2) var<storage, read> t_a: array<u32>;
@group(0) @binding(3) var<storage, read> t_b: array<u32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<u32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  var left = i;
  var at = vec3<u32>(0u);
  for (var r = params.rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.dims[d >> 2u][d & 3u];
    let k = left % size;
    left /= size;
    let strides = vec3<u32>(
      params.cond_strides[d >> 2u][d & 3u], params.a_strides[d >> 2u][d & 3u], params.b_strides[d >> 2u][d & 3u],
    );
    at += k * strides;
  }
  if (t_cond[at.x] != 0u) { t_out[i] = t_a[at.y]; } else { t_out[i] = t_b[at.z]; }
}
