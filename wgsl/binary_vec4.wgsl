// out = EXPR of a and b of one shape, four elements a lane.
struct Params { count: u32, alpha: f32 }

alias BOTH_T = $BOTH;
alias OUT_T = $OUT;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_a: array<$A>;
@group(0) @binding(2) var<storage, read> t_b: array<$B>;
@group(0) @binding(3) var<storage, read_write> t_out: array<OUT_T>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = (wid.y * count.x + wid.x) * WG + lane;
  if (i >= params.count) { return; }
  let a = BOTH_T(t_a[i]);
  let b = BOTH_T(t_b[i]);
  t_out[i] = OUT_T($EXPR);
}
