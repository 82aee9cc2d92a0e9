// Reads an rgba32uint texture as the 4-bit kernels do: one workgroup per row, neighbouring lanes, `per` texels each.
const WG: u32 = 64;  // plan: invocations per workgroup
struct Params { per: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var t_x: texture_storage_2d<rgba32uint, read>;  // if IMAGES
// if IMAGES == 0: @group(0) @binding(1) var t_x: texture_2d<u32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<u32>;

fn texel(x: u32, y: u32) -> vec4<u32> {
  return textureLoad(t_x, vec2(x, y));  // if IMAGES
  // if IMAGES == 0: return textureLoad(t_x, vec2(x, y), 0);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  var a = vec4<u32>();
  var b = vec4<u32>();
  for (var i = 0u; i < params.per; i += 4) {
    let x = i * WG + lane;
    a ^= texel(x, wid.x) ^ texel(x + WG, wid.x);
    b ^= texel(x + 2 * WG, wid.x) ^ texel(x + 3 * WG, wid.x);
  }
  a ^= b;
  t_out[wid.x * WG + lane] = a.x ^ a.y ^ a.z ^ a.w;
}
