// Copies storage: neighbouring lanes move 16 bytes each, `per` times.
const WG: u32 = 64;  // plan: invocations per workgroup
struct Params { per: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> t_out: array<vec4<u32>>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let base = wid.x * params.per * WG + lane;
  for (var i = 0u; i < params.per; i += 4) {
    t_out[base + i * WG] = t_x[base + i * WG];
    t_out[base + (i + 1) * WG] = t_x[base + (i + 1) * WG];
    t_out[base + (i + 2) * WG] = t_x[base + (i + 2) * WG];
    t_out[base + (i + 3) * WG] = t_x[base + (i + 3) * WG];
  }
}
