// A linear, four k at a time.
alias V = vec4<f32>;
fn added(acc: f32, w: V, x: V) -> f32 { return acc + dot(w, x); }
// include: linear_body
