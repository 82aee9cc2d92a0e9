// Prepares rows for a linear: normalises them if NORM, rounds them to the 8-bit steps of their own range if ROUND. One
// workgroup per row; each lane takes every WG-th 8 k. Rounded rows are stored next to their step sizes. With BYTES they are bytes,
// and their zero points are stored too. Otherwise they are in steps from the zero point, whose products with 4-bit weights add up
// exactly: in pairs with PACKED (see q8_int.wgsl), else as f32.
// include: row_grid
// include: q8_range
// include: q8_pack
const K: u32 = 64;  // plan: elements per row
const PITCH: u32 = 64;  // plan: elements from one stored row to the next
const ROUND: u32 = 1;  // plan
const PACKED: u32 = 1;  // plan
const BYTES: u32 = 0;  // plan
const WINDOW: u32 = 0;  // plan: rows in the uniform window, 0 if x is read from storage

struct Params { rows: u32, first: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
// Software adapters read a uniform window of WINDOW rows, because reads from storage are slower there.
@group(0) @binding(1) var<storage, read> t_x: array<vec4<f32>>;  // if WINDOW == 0
// if WINDOW: @group(0) @binding(1) var<uniform> t_x: array<vec4<f32>, WINDOW * K / 4>;
@group(0) @binding(2) var<storage, read> t_norm: array<vec4<f32>>;  // if NORM and WINDOW == 0
// if NORM and WINDOW: @group(0) @binding(2) var<uniform> t_norm: array<vec4<f32>, K / 4>;
@group(0) @binding(3) var<storage, read_write> t_out: array<vec4<u32>>;  // if BYTES == 0
// if BYTES: @group(0) @binding(3) var<storage, read_write> t_out: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> t_sizes: array<f32>;  // if ROUND and BYTES == 0
// if BYTES: @group(0) @binding(4) var<storage, read_write> t_sizes: array<vec2<f32>>;

// Quantized with BYTES, else in steps, or only normalised if not ROUND.
fn ready(x: vec4<f32>, weight: vec4<f32>) -> vec4<f32> {
  if (BYTES == 1) { return quantized(x, weight); }
  if (ROUND == 1) { return steps(x, weight); }
  return x * norm * weight;
}

fn run(at: u32, lane: u32) {
  if (at >= params.rows) { return; }
  let base = at * (K / 4);
  look_through(base, lane, WG);
  let to = (params.first + at) * (PITCH / 8);
  for (var i = lane; i < K / 8; i += WG) {
    let upper = ready(t_x[base + i * 2], weight(i * 2));
    let lower = ready(t_x[base + i * 2 + 1], weight(i * 2 + 1));
    // if BYTES: t_out[to + i] = packed(upper, lower);
    // if PACKED: t_out[to + i] = bitcast<vec4<u32>>((vec4<i32>(upper) << vec4(16u)) + vec4<i32>(lower));
    // if PACKED == 0 and BYTES == 0: t_out[(to + i) * 2] = bitcast<vec4<u32>>(upper);
    // if PACKED == 0 and BYTES == 0: t_out[(to + i) * 2 + 1] = bitcast<vec4<u32>>(lower);
  }
  if (lane == 0) { t_sizes[params.first + at] = size; }  // if ROUND and BYTES == 0
  // if BYTES: if (lane == 0) { t_sizes[params.first + at] = vec2(size, zero); }
}
