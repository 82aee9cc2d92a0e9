// A block of x from the four words of pairs that begin at `at`; the file that includes this one has pairs().
fn x_at(at: u32) -> X {
  let x = array(pairs(at), pairs(at + 1), pairs(at + 2), pairs(at + 3));
  var v = array<vec4<u32>, 4>();
  var sum = vec4<i32>();
  for (var i = 0u; i < 4; i++) { // unroll
    v[i] = vec4(x[0][i], x[1][i], x[2][i], x[3][i]);
    sum += upper(x[i]) + lower(x[i]);
  }
  return X(v, (sum.x + sum.y + sum.z + sum.w) * -8, 0.0);
}
