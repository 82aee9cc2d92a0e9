// RMS norm, four elements at a time.
alias V = vec4<f32>;
const LANES: u32 = 4;
fn sum(v: V) -> f32 { return dot(v, vec4<f32>(1.0)); }
// include: rms_norm_body
