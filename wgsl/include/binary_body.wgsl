// out[i] = EXPR of one element of a and one of b, converted to one type first.
alias BOTH_T = f32;  // plan BOTH is f32
alias OUT_T = f32;  // plan OUT is f32
alias BITS_T = u32;  // plan BITS is u32
alias A = f32;  // plan
alias B = f32;  // plan

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_a: array<A>;
@group(0) @binding(2) var<storage, read> t_b: array<B>;
@group(0) @binding(3) var<storage, read_write> t_out: array<OUT_T>;

fn put(i: u32, at_a: u32, at_b: u32) {
  let a = BOTH_T(t_a[at_a]);
  let b = BOTH_T(t_b[at_b]);
  t_out[i] = OUT_T(a + b);  // plan EXPR is a + b
}

// include: lane_grid
