// out = EXPR of a and b, each read through its broadcast strides.
struct Params {
  count: u32,
  rank: u32,
  alpha: f32,
  dims: array<vec4<u32>, 2>,
  a_strides: array<vec4<u32>, 2>,
  b_strides: array<vec4<u32>, 2>,
}

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
  var left = i;
  var at_a = 0u;
  var at_b = 0u;
  for (var r = params.rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.dims[d >> 2u][d & 3u];
    let k = left % size;
    left /= size;
    at_a += k * params.a_strides[d >> 2u][d & 3u];
    at_b += k * params.b_strides[d >> 2u][d & 3u];
  }
  let a = BOTH_T(t_a[at_a]);
  let b = BOTH_T(t_b[at_b]);
  t_out[i] = OUT_T($EXPR);
}
