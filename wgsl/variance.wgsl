// The variance over some dims: one workgroup per output adds up the elements, then their squared distances from the mean.
struct Params {
  count: u32,
  size: u32,
  outer_rank: u32,
  rank: u32,
  scale: f32,
  outer_dims: array<vec4<u32>, 2>,
  outer_strides: array<vec4<u32>, 2>,
  dims: array<vec4<u32>, 2>,
  strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<f32>;

var<workgroup> part: array<f32, WG>;

fn element(base: u32, i: u32) -> f32 {
  var at = base;
  var left = i;
  for (var r = params.rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.dims[d >> 2u][d & 3u];
    at += left % size * params.strides[d >> 2u][d & 3u];
    left /= size;
  }
  return t_x[at];
}

fn total(lane: u32, value: f32) -> f32 {
  workgroupBarrier();
  part[lane] = value;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
  }
  return part[0];
}

// include: row_grid
fn run(item: u32, lane: u32) {
  if (item >= params.count) { return; }
  var left = item;
  var base = 0u;
  for (var r = params.outer_rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.outer_dims[d >> 2u][d & 3u];
    base += left % size * params.outer_strides[d >> 2u][d & 3u];
    left /= size;
  }
  var sum = 0.0;
  for (var i = lane; i < params.size; i += WG) { sum += element(base, i); }
  let mean = total(lane, sum) / f32(params.size);
  var squares = 0.0;
  for (var i = lane; i < params.size; i += WG) {
    let distance = element(base, i) - mean;
    squares += distance * distance;
  }
  let value = total(lane, squares);
  if (lane == 0u) { t_out[item] = value * params.scale; }
}
