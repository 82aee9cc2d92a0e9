// Reads storage at full bandwidth: neighbouring lanes take 16 bytes each, `per` times. Each lane folds all it read into a word.
const WG: u32 = 64;  // plan: invocations per workgroup
struct Params { per: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> t_out: array<u32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let base = wid.x * params.per * WG + lane;
  var a = vec4<u32>();
  var b = vec4<u32>();
  for (var i = 0u; i < params.per; i += 4) {
    a ^= t_x[base + i * WG] ^ t_x[base + (i + 1) * WG];
    b ^= t_x[base + (i + 2) * WG] ^ t_x[base + (i + 3) * WG];
  }
  a ^= b;
  t_out[wid.x * WG + lane] = a.x ^ a.y ^ a.z ^ a.w;
}
