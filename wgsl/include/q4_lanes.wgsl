// Activations in f32 for subgroups of at least 8: lane j of every 8 loads the four x at 4 j of a block, and broadcasts them. The
// file that includes this one has four(row, i), which loads them, and factor(row, square), by which their sums are multiplied.
// include: q4_float
// include: sum8_subgroup
fn load_x(row: u32, b: u32, lane: u32) -> X {
  let at = b * 8 + lane % 8;
  var x = four(row, at);
  let square = dot(x, x);
  x *= t_norm[at];  // if NORM
  let s = x * select(vec4(1.0, 0x1p-4, 0x1p-8, 0x1p-12), vec4(0x1p-16, 0x1p-20, 0x1p-24, 1.0), lane % 2 == 1);
  var v: array<vec4<f32>, 8>;
  for (var j = 0u; j < 8; j++) { // unroll
    for (var q = 0u; q < 4; q++) { // unroll
      v[j][q] = subgroupBroadcast(s[j % 4], q * 2 + j / 4);
    }
  }
  return X(v, sum8(dot(x, vec4(-8.0))), square);
}

fn across(v: f32) -> f32 { return sum8(v); }
