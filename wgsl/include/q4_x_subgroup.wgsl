// Activations in a uniform window, or in storage if a row is larger than a uniform (WINDOW = 0).
// include: q4_lanes
// include: norm_factor
const WINDOW: u32 = 4;  // plan: rows in the window
@group(0) @binding(3) var<uniform> t_x: array<vec4<f32>, WINDOW * K / 4>;  // if WINDOW
// if WINDOW == 0: @group(0) @binding(3) var<storage, read> t_x: array<vec4<f32>>;

fn four(row: u32, i: u32) -> vec4<f32> {
  return t_x[row * (K / 4) + i];  // if WINDOW
  // if WINDOW == 0: return t_x[min(row, params.rows - 1) * (K / 4) + i];
}
