// The entry of kernels that give each lane a number, however the grid is folded.
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  run((wid.y * count.x + wid.x) * WG + lane);
}

