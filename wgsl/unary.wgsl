// out = EXPR of x and the scalars a and b, element by element; IN and OUT are scalars or vec4s.
struct Params { count: u32, a: f32, b: f32 }

alias IN_T = $IN;
alias OUT_T = $OUT;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<IN_T>;
@group(0) @binding(2) var<storage, read_write> t_out: array<OUT_T>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = (wid.y * count.x + wid.x) * WG + lane;
  if (i >= params.count) { return; }
  let x = t_x[i];
  t_out[i] = OUT_T($EXPR);
}
