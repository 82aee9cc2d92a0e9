// A linear, one k at a time.
alias V = f32;
fn added(acc: f32, w: V, x: V) -> f32 { return fma(w, x, acc); }
// include: linear_body
