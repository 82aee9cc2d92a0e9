// Every lane reads all 16 pairs of a block itself.
// include: q8_packed
fn load_x(row: u32, b: u32, lane: u32) -> X {
  let at = row * (K / 8) + b * 4;
  let x = array(t_x[at], t_x[at + 1], t_x[at + 2], t_x[at + 3]);
  var v = array<vec4<u32>, 4>();
  var sum = vec4<i32>();
  for (var i = 0u; i < 4; i++) { // unroll
    v[i] = vec4(x[0][i], x[1][i], x[2][i], x[3][i]);
    sum += upper(x[i]) + lower(x[i]);
  }
  return X(v, (sum.x + sum.y + sum.z + sum.w) * -8, 0.0);
}
