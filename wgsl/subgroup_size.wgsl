// The subgroup size of this adapter, as each invocation sees it; 0 if lanes are not in the order of invocations.
@group(0) @binding(0) var<storage, read_write> t_out: array<u32>;

@compute @workgroup_size(64)
fn main(
  @builtin(local_invocation_index) lane: u32,
  @builtin(subgroup_size) size: u32,
  @builtin(subgroup_invocation_id) place: u32,
) {
  t_out[lane] = select(0u, size, place == lane % size);
}
