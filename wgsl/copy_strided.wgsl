// Copies a block of 32-bit elements between two strided layouts of rank at most 8.
struct Params {
  count: u32,
  rank: u32,
  in_base: u32,
  out_base: u32,
  dims: array<vec4<u32>, 2>,
  in_strides: array<vec4<u32>, 2>,
  out_strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<u32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<u32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  var left = i;
  var from_at = params.in_base;
  var to_at = params.out_base;
  for (var r = params.rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.dims[d >> 2u][d & 3u];
    let k = left % size;
    left /= size;
    from_at += k * params.in_strides[d >> 2u][d & 3u];
    to_at += k * params.out_strides[d >> 2u][d & 3u];
  }
  t_out[to_at] = t_x[from_at];
}
