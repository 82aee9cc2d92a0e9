// Prepares rows for a linear: normalises them if NORM, rounds them to the 8-bit steps of their own range if ROUND. One
// workgroup per row; each lane takes every WG-th 8 k. With PACKED the rows are stored in pairs (see q8_int.wgsl), otherwise as
// f32. Rounded rows are stored in steps, whose products with 4-bit weights add up exactly, next to their step sizes.
// include: row_grid
// include: q8_range
const K: u32 = 64;  // plan: elements per row
const ROUND: u32 = 1;  // plan
const PACKED: u32 = 1;  // plan
const WINDOW: u32 = 0;  // plan: rows in the uniform window, 0 if x is read from storage

struct Params { rows: u32, first: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
// Software adapters read a uniform window of WINDOW rows, because reads from storage are slower there.
@group(0) @binding(1) var<storage, read> t_x: array<vec4<f32>>;  // if WINDOW == 0
// if WINDOW: @group(0) @binding(1) var<uniform> t_x: array<vec4<f32>, WINDOW * K / 4>;
@group(0) @binding(2) var<storage, read> t_norm: array<vec4<f32>>;  // if NORM and WINDOW == 0
// if NORM and WINDOW: @group(0) @binding(2) var<uniform> t_norm: array<vec4<f32>, K / 4>;
@group(0) @binding(3) var<storage, read_write> t_out: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> t_sizes: array<f32>;  // if ROUND

// In steps, or only normalised if not ROUND.
fn ready(x: vec4<f32>, weight: vec4<f32>) -> vec4<f32> {
  if (ROUND == 1) { return steps(x, weight); }
  return x * norm * weight;
}

fn run(at: u32, lane: u32) {
  if (at >= params.rows) { return; }
  let base = at * (K / 4);
  look_through(base, lane, WG);
  let to = (params.first + at) * (K / 8);
  for (var i = lane; i < K / 8; i += WG) {
    let upper = ready(t_x[base + i * 2], weight(i * 2));
    let lower = ready(t_x[base + i * 2 + 1], weight(i * 2 + 1));
    if (PACKED == 1) {
      t_out[to + i] = bitcast<vec4<u32>>((vec4<i32>(upper) << vec4(16u)) + vec4<i32>(lower));
    } else {
      t_out[(to + i) * 2] = bitcast<vec4<u32>>(upper);
      t_out[(to + i) * 2 + 1] = bitcast<vec4<u32>>(lower);
    }
  }
  if (lane == 0) { t_sizes[params.first + at] = size; }  // if ROUND
}
