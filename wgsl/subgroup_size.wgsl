// How many lanes a subgroup has on this adapter.
@group(0) @binding(0) var<storage, read_write> t_out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(subgroup_size) size: u32) {
  if (lane == 0u) { t_out[0] = size; }
}
