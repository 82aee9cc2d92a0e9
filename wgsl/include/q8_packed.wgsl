// Activations that ready_rows.wgsl has rounded: a vec4 holds the four pairs of 8 k, t_sizes the step size of each row.
// include: q8_int
const WINDOW: u32 = 4;  // plan: rows in the window
@group(0) @binding(3) var<uniform> t_x: array<vec4<u32>, WINDOW * K / 8>;
@group(0) @binding(4) var<storage, read> t_sizes: array<f32>;

fn prepare(lane: u32) {}

fn factor(row: u32, square: f32) -> f32 { return t_sizes[params.out_row + row]; }
