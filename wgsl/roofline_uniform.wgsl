// Reads a uniform window: all lanes of a workgroup take the same 16 bytes, one vec4 after the other.
const WG: u32 = 64;  // plan: invocations per workgroup
const SIZE: u32 = 1024;  // plan: vec4s in the window
@group(0) @binding(0) var<uniform> t_x: array<vec4<u32>, SIZE>;
@group(0) @binding(1) var<storage, read_write> t_out: array<u32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  var a = vec4<u32>(lane);
  var b = vec4<u32>();
  for (var i = 0u; i < SIZE; i += 4) {
    a ^= t_x[i] + t_x[i + 1];
    b ^= t_x[i + 2] + t_x[i + 3];
  }
  a ^= b;
  t_out[wid.x * WG + lane] = a.x ^ a.y ^ a.z ^ a.w;
}
