// Activations in a uniform window, for subgroups of at least 8: lane j reads the four x for nibble j and broadcasts them.
// include: q4_float
// include: sum8_subgroup
const WINDOW: u32 = 4;  // plan: rows in the window
@group(0) @binding(3) var<uniform> t_x: array<vec4<f32>, WINDOW * K / 4>;

fn load_x(row: u32, b: u32, lane: u32) -> X {
  let at = b * 8 + lane / 4;
  let r = row * (K / 4);
  let c = lane % 4;
  var x = vec4(t_x[r + at][c], t_x[r + at + 2][c], t_x[r + at + 4][c], t_x[r + at + 6][c]);
  let square = dot(x, x);
  if (NORM == 1) { x *= norm(at, c); }
  let sum = sum8(dot(x, vec4(-8.0)));
  let s = x * select(bitcast<f32>((127u - 4u * lane) << 23u), 1.0, lane == 7u);
  return X(array(subgroupBroadcast(s, 0u), subgroupBroadcast(s, 1u), subgroupBroadcast(s, 2u), subgroupBroadcast(s, 3u),
    subgroupBroadcast(s, 4u), subgroupBroadcast(s, 5u), subgroupBroadcast(s, 6u), subgroupBroadcast(s, 7u)), sum, square);
}

fn across(v: f32) -> f32 { return sum8(v); }
