// out = x with the index in place of one coordinate, per element; `strides` is 0 for that coordinate and `step` has its
// stride. An index outside x reads its last element, never other memory.
struct Params {
  count: u32,
  rank: u32,
  size: u32,
  step: u32,
  dims: array<vec4<u32>, 2>,
  strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<u32>;
@group(0) @binding(2) var<storage, read> t_at: array<u32>;
@group(0) @binding(3) var<storage, read_write> t_out: array<u32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  var left = i;
  var at = min(t_at[i], params.size - 1u) * params.step;
  for (var r = params.rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.dims[d >> 2u][d & 3u];
    at += left % size * params.strides[d >> 2u][d & 3u];
    left /= size;
  }
  t_out[i] = t_x[at];
}
