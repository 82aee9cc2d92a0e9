// The factor of a row's sums, where the kernel normalises the row: it is known once the whole row was read.
fn factor(row: u32, square: f32) -> f32 {
  var f = 1.0;
  f = inverseSqrt(across(square) / f32(K) + params.eps);  // if NORM
  return f;
}
