// out = EXPR of x and two numbers, per element, all of it computed in BOTH. The types are scalars or vec4s.
struct Params { count: u32, first: f32, second: f32, int_first: i32, int_second: i32 }

alias BOTH_T = f32;  // plan BOTH is f32
alias OUT_T = f32;  // plan OUT is f32
alias BITS_T = u32;  // plan BITS is u32
alias X = f32;  // plan

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<X>;
@group(0) @binding(2) var<storage, read_write> t_out: array<OUT_T>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let x = BOTH_T(t_x[i]);
  t_out[i] = OUT_T(x + params.first);  // plan EXPR is x + params.first
}
