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

// include: reduced_dims
// include: workgroup_sum
// include: row_grid
fn run(item: u32, lane: u32) {
  if (item >= params.count) { return; }
  let base = base_of(item);
  var sum = 0.0;
  for (var i = lane; i < params.size; i += WG) { sum += t_x[place_of(base, i)]; }
  let mean = total(sum, lane) / f32(params.size);
  var squares = 0.0;
  for (var i = lane; i < params.size; i += WG) {
    let distance = t_x[place_of(base, i)] - mean;
    squares += distance * distance;
  }
  let value = total(squares, lane);
  if (lane == 0u) { t_out[item] = value * params.scale; }
}
