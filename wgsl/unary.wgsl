// out = EXPR of x and the scalars a and b, per element. IN and OUT are scalars or vec4s.
struct Params { count: u32, a: f32, b: f32 }

alias IN_T = f32;  // plan IN is f32
alias OUT_T = f32;  // plan OUT is f32

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<IN_T>;
@group(0) @binding(2) var<storage, read_write> t_out: array<OUT_T>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let x = t_x[i];
  t_out[i] = OUT_T(x + params.a);  // plan EXPR is x + params.a
}
