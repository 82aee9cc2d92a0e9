// Rows for few_bytes.wgsl that ready_rows.wgsl has rounded.
// include: q4_few
@group(0) @binding(3) var<storage, read> t_x: array<vec2<u32>>;  // 8 k
@group(0) @binding(4) var<storage, read> t_sizes: array<vec2<f32>>;  // step size and zero point of each row

fn set_zeros(row: u32, local: u32) {
  for (var r = 0u; r < ROWS; r++) { // unroll
    zeros[r] = t_sizes[min(row + r, params.rows - 1)].y;
  }
}

fn ready_word(row: u32, word: u32) -> vec2<u32> { return t_x[min(row, params.rows - 1) * (K / 8) + word]; }

fn step_size(r: u32) -> f32 { return t_sizes[r].x; }
