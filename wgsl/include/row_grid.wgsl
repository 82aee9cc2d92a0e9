// Entry point of kernels with one workgroup per row. The grid may be folded into two dimensions.
const WG: u32 = 64;  // plan: invocations per workgroup
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  run(wid.y * count.x + wid.x, lane);
}

