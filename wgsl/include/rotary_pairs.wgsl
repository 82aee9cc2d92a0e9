// Rotates the two pairs at elements 4 i to 4 i + 3 of a head. The two elements of a rotary pair are neighbours: if the tables
// pair the halves of a head, the columns of the weights were reordered when packed. The file that includes this one has t_cos
// and t_sin, as vectors of two columns.
const TABLE: u32 = 32;  // plan: columns of the cosine and sine tables
const HALVES: u32 = 0;  // plan: 1 if the tables pair the halves of a head

fn turn(v: vec4<f32>, i: u32, pos: u32) -> vec4<f32> {
  if (HALVES == 1 && i * 4 >= TABLE) { return v; }
  let at = pos * (TABLE / 2) + i;
  let up = at + HALVES * TABLE / 4;
  let a = vec2(v.x, v.z);
  let b = vec2(v.y, v.w);
  let x = a * t_cos[at] - b * t_sin[at];
  let y = b * t_cos[up] + a * t_sin[up];
  return vec4(x.x, y.x, x.y, y.y);
}
