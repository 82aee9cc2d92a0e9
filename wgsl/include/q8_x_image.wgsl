// Activations that ready_rows.wgsl has rounded, in a texture that holds all rows: a texel holds the four pairs of 8 k.
// include: q8_int
// include: q8_shared
const STAGED_ROWS: u32 = 64;  // plan: rows per layer of the texture
@group(0) @binding(3) var t_x: texture_storage_2d_array<rgba32uint, read>;
@group(0) @binding(4) var<storage, read> t_sizes: array<f32>;

fn prepare(lane: u32) {}

fn load_x(row: u32, b: u32, lane: u32) -> X {
  let four = textureLoad(t_x, vec2(b * 4 + lane % 8 / 2, row % STAGED_ROWS), row / STAGED_ROWS);
  let pairs = vec4(select(four.xy, four.zw, lane % 2 == 1), 0u, 0u);
  return shared_x(upper(pairs).xy, lower(pairs).xy);
}

fn factor(row: u32, square: f32) -> f32 { return t_sizes[row]; }
