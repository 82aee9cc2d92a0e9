// Multiplies and adds in registers: sixteen independent chains per lane, which hide the latency and spill nowhere; 128
// operations per turn.
// if F16: enable f16;
const WG: u32 = 64;  // plan: invocations per workgroup
alias T = f32;  // plan: f32 or f16

struct Params { loops: u32, scale: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> t_out: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let m = vec4<T>(T(params.scale));
  let c = vec4<T>(T(params.scale) * T(lane + 1));
  var a = c;
  var b = c + m;
  var d = b + m;
  var e = d + m;
  for (var i = 0u; i < params.loops; i++) {
    a = fma(a, m, c);
    b = fma(b, m, c);
    d = fma(d, m, c);
    e = fma(e, m, c);
    a = fma(a, m, c);
    b = fma(b, m, c);
    d = fma(d, m, c);
    e = fma(e, m, c);
    a = fma(a, m, c);
    b = fma(b, m, c);
    d = fma(d, m, c);
    e = fma(e, m, c);
    a = fma(a, m, c);
    b = fma(b, m, c);
    d = fma(d, m, c);
    e = fma(e, m, c);
  }
  t_out[wid.x * WG + lane] = f32(dot(a + b + d + e, vec4<T>(T(1))));
}
