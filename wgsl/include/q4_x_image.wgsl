// Activations in a texture that holds all rows. On a software adapter one texel load costs half of four uniform loads.
// include: q4_lanes
const STAGED_ROWS: u32 = 64;  // plan: rows per layer of the texture
const FACTORS: u32 = 0;  // plan: 1 if rows still have to be multiplied by their factor of the norm
@group(0) @binding(3) var t_x: texture_storage_2d_array<rgba32float, read>;
@group(0) @binding(4) var<storage, read> t_factors: array<f32>;  // if FACTORS

fn four(row: u32, i: u32) -> vec4<f32> { return textureLoad(t_x, vec2(i, row % STAGED_ROWS), row / STAGED_ROWS); }

fn factor(row: u32, square: f32) -> f32 {
  return 1.0;  // if FACTORS == 0
  // if FACTORS: return t_factors[row];
}
