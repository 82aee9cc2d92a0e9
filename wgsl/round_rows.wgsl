// x rounded to the 8-bit steps of each row's scale and zero point, still in f32: one element per lane.
// include: nan
const WG: u32 = 64;  // plan: invocations per workgroup
struct Params { count: u32, width: u32, low: i32, high: i32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_scale: array<f32>;
@group(0) @binding(3) var<storage, read> t_zero: array<i32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = (wid.y * count.x + wid.x) * WG + lane;
  if (i >= params.count) { return; }
  let scale = t_scale[i / params.width];
  let zero = f32(t_zero[i / params.width]);
  let x = t_x[i];
  let step = clamp(round(x * (1.0 / scale)) + zero, f32(params.low), f32(params.high));
  // clamp may turn NaN into a number
  t_out[i] = select((step - zero) * scale, x, is_nan(x));
}
