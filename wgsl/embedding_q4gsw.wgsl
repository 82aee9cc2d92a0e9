// Rows of a table as in the file: a lane dequantizes one word, 8 weights of a row.
struct Params { words: u32, dim: u32, group: u32, vocab: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_w: array<u32>;
@group(0) @binding(2) var<storage, read> t_scales: array<f32>;
@group(0) @binding(3) var<storage, read> t_index: array<i32>;
@group(0) @binding(4) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.words) { return; }
  let per_row = params.dim / 8u;
  let row = min(u32(max(t_index[i / per_row], 0)), params.vocab - 1u);
  let j = i % per_row;
  let word = t_w[row * per_row + j];
  for (var b = 0u; b < 8u; b++) {
    let k = j * 8u + b;
    let scale = t_scales[row * (params.dim / params.group) + k / params.group];
    t_out[i * 8u + b] = (f32((word >> (b * 4u)) & 15u) - 8.0) * scale;
  }
}
