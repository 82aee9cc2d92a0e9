// Activations in a uniform window, or in storage if a row is larger than a uniform (WINDOW = 0). Every lane reads all 32 x of a
// block itself.
// include: q4_float
// include: norm_factor
const WINDOW: u32 = 4;  // plan: rows in the window
@group(0) @binding(3) var<uniform> t_x: array<vec4<f32>, WINDOW * K / 4>;  // if WINDOW
// if WINDOW == 0: @group(0) @binding(3) var<storage, read> t_x: array<vec4<f32>>;

fn norm(at: u32, c: u32) -> vec4<f32> {
  var w = vec4(1.0);
  w = vec4(t_norm[at][c], t_norm[at + 2][c], t_norm[at + 4][c], t_norm[at + 6][c]);  // if NORM
  return w;
}

fn four(r: u32, b: u32, at: u32, c: u32) -> vec4<f32> {
  let i = b * 8 + at;
  var x = vec4(t_x[r + i][c], t_x[r + i + 2][c], t_x[r + i + 4][c], t_x[r + i + 6][c]);
  if (NORM == 1) { x *= norm(i, c); }
  return x;
}

fn load_x(row: u32, b: u32, lane: u32) -> X {
  let r = row * (K / 4);  // if WINDOW
  // if WINDOW == 0: let r = min(row, params.rows - 1) * (K / 4);
  let x = array(four(r, b, 0, 0), four(r, b, 0, 1), four(r, b, 0, 2), four(r, b, 0, 3),
    four(r, b, 1, 0), four(r, b, 1, 1), four(r, b, 1, 2), four(r, b, 1, 3));
  var square = 0.0;
  if (NORM == 1) { for (var i = 0u; i < 8; i++) { let v = t_x[r + b * 8 + i]; square += dot(v, v); } }
  return X(array(x[0], x[1] * 0x1p-4, x[2] * 0x1p-8, x[3] * 0x1p-12, x[4] * 0x1p-16, x[5] * 0x1p-20, x[6] * 0x1p-24, x[7]),
    dot(x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7], vec4(-8.0)), square);
}

fn across(v: f32) -> f32 { return v; }
