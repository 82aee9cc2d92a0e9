// Rows of a table of 4-bit weights, two per byte, the even column in the high nibble: one element per lane.
const ZEROS: u32 = 0;  // plan
// include: lane_grid
struct Params { count: u32, dim: u32, group: u32, vocab: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_w: array<u32>;
@group(0) @binding(2) var<storage, read> t_scales: array<f32>;
@group(0) @binding(3) var<storage, read> t_zeros: array<f32>;
@group(0) @binding(4) var<storage, read> t_index: array<i32>;
@group(0) @binding(5) var<storage, read_write> t_out: array<f32>;

fn run(i: u32) {
  if (i >= params.count) { return; }
  let row = min(u32(max(t_index[i / params.dim], 0)), params.vocab - 1u);
  let k = i % params.dim;
  let nibble = (row * params.dim + k) ^ 1u;
  let at = row * (params.dim / params.group) + k / params.group;
  var steps = f32((t_w[nibble / 8u] >> (nibble % 8u * 4u)) & 15u) - 8.0;
  if (ZEROS == 1) { steps -= t_zeros[at]; }
  t_out[i] = steps * t_scales[at];
}
