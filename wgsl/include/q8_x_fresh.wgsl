// One f32 row, normalised and rounded here. Every workgroup reads the whole row first, for its norm and range; on software
// adapters that costs less than one more dispatch.
// include: q8_int
// include: q8_shared
// include: q8_range
// include: row_subgroup
const ROUND: u32 = 1;

@group(0) @binding(3) var<uniform> t_x: array<vec4<f32>, K / 4>;
@group(0) @binding(4) var<uniform> t_norm: array<vec4<f32>, K / 4>;  // if NORM

fn prepare(lane: u32) { look_through(0, lane % 8, 8); }

fn load_x(row: u32, b: u32, lane: u32) -> X {
  let at = b * 8 + lane % 8 / 2 * 2;
  let c = lane % 2 * 2;
  let x = vec4(t_x[at][c], t_x[at][c + 1], t_x[at + 1][c], t_x[at + 1][c + 1]);
  var w = vec4(1.0);
  w = vec4(t_norm[at][c], t_norm[at][c + 1], t_norm[at + 1][c], t_norm[at + 1][c + 1]);  // if NORM
  let s = vec4<i32>(steps(x, w));
  return shared_x(s.xy, s.zw);
}

fn factor(row: u32, square: f32) -> f32 { return size; }
