// RMS norm, one element at a time.
alias V = f32;
const LANES: u32 = 1;
fn sum(v: V) -> f32 { return v; }
// include: rms_norm_body
