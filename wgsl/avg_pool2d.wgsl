// Mean of a window: size = input height, width, output height, width; taps = window and dilations; shift =
// strides and paddings.
struct Params {
  count: u32, divisor: u32, include: u32,
  size: vec4<u32>, taps: vec4<u32>, shift: vec4<u32>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<f32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = (wid.y * count.x + wid.x) * WG + lane;
  if (i >= params.count) { return; }
  let size = vec2<i32>(params.size.xy);
  let pad = vec2<i32>(params.shift.zw);
  let ox = i % params.size.w;
  let oy = i / params.size.w % params.size.z;
  let base = i / (params.size.w * params.size.z) * params.size.x * params.size.y;
  var sum = 0.0;
  var inside = 0u;
  var padded = 0u;
  for (var ky = 0u; ky < params.taps.x; ky++) {
    for (var kx = 0u; kx < params.taps.y; kx++) {
      let at = vec2<i32>(vec2<u32>(oy, ox) * params.shift.xy + vec2<u32>(ky, kx) * params.taps.zw) - pad;
      if (all(at < size + pad)) { padded++; }
      if (any(at < vec2<i32>(0)) || any(at >= size)) { continue; }
      inside++;
      sum += t_x[base + u32(at.x) * params.size.y + u32(at.y)];
    }
  }
  var by = inside;
  if (params.include == 1u) { by = padded; }
  if (params.divisor > 0u) { by = params.divisor; }
  t_out[i] = sum / f32(by);
}
