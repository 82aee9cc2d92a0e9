// One workgroup per output: lanes stride over the reduced dims, then the workgroup combines their values.
struct Params {
  count: u32,
  size: u32,
  outer_rank: u32,
  rank: u32,
  divide: f32,
  outer_dims: array<vec4<u32>, 2>,
  outer_strides: array<vec4<u32>, 2>,
  dims: array<vec4<u32>, 2>,
  strides: array<vec4<u32>, 2>,
}

alias KIND_T = f32;  // plan KIND is f32
alias OUT_T = f32;  // plan OUT is f32

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<KIND_T>;
@group(0) @binding(2) var<storage, read_write> t_out: array<OUT_T>;

var<workgroup> part: array<KIND_T, WG>;

fn combine(a: KIND_T, b: KIND_T) -> KIND_T { return a + b; }  // plan COMBINE is a + b

// include: reduced_dims
// include: row_grid
fn run(item: u32, lane: u32) {
  if (item >= params.count) { return; }
  let base = base_of(item);
  var acc = KIND_T(0.0);  // plan START is 0.0
  for (var i = lane; i < params.size; i += WG) { acc = combine(acc, t_x[place_of(base, i)]); }
  part[lane] = acc;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] = combine(part[lane], part[lane + half]); }
    workgroupBarrier();
  }
  let value = part[0];
  if (lane == 0u) { t_out[item] = OUT_T(value); }  // plan FINAL is value
}
