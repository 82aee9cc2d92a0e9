// out[i] = EXPR of one element of a and one of b, brought to one type first.
alias BOTH_T = $BOTH;
alias OUT_T = $OUT;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_a: array<$A>;
@group(0) @binding(2) var<storage, read> t_b: array<$B>;
@group(0) @binding(3) var<storage, read_write> t_out: array<OUT_T>;

fn put(i: u32, at_a: u32, at_b: u32) {
  let a = BOTH_T(t_a[at_a]);
  let b = BOTH_T(t_b[at_b]);
  t_out[i] = OUT_T($EXPR);
}

// include: lane_grid
