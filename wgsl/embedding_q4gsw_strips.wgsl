// Rows of a table that is stored in strips, as the weight of a linear is: a lane dequantizes one block of 32 of one token.
// include: q4_texel
struct Params { count: u32, vocab: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_index: array<i32>;
@group(0) @binding(3) var<storage, read_write> t_out: array<vec4<f32>>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let b = i % BLOCKS;
  let n = min(u32(max(t_index[i / BLOCKS], 0)), params.vocab - 1u);
  let row = n / (4 * LANES) / TOGETHER;
  let at = n / (4 * LANES) % TOGETHER;
  let lane = n % (4 * LANES) / 4;
  let g = b / GROUP_BLOCKS;
  let scale = bitcast<vec4<f32>>(texel(row, (g * (1 + GROUP_BLOCKS * 4) * TOGETHER + at) * LANES + lane))[n % 4];
  let w = texel(row, ((b * 4 + g + 1) * TOGETHER + at * 4 + n % 4) * LANES + lane);
  for (var q = 0u; q < 4; q++) {
    let low = (vec4(w[q]) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u);
    let high = (vec4(w[q]) >> vec4(16u, 20u, 24u, 28u)) & vec4(15u);
    t_out[i * 8 + q * 2] = (vec4<f32>(low) - 8.0) * scale;
    t_out[i * 8 + q * 2 + 1] = (vec4<f32>(high) - 8.0) * scale;
  }
}
