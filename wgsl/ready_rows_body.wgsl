// Rows made ready for a linear: normalised where NORM is 1, and with ROUND rounded to the 8-bit steps of their own range. A
// workgroup a row, its lanes each with every WG-th 8 k. With PACKED they go out in pairs (see q8_int.wgsl) with the size of
// their steps beside them, else in f32.
// include: row_grid
// include: q8_range
struct Params { rows: u32, first: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<$SPACE> t_x: array<vec4<f32>$X_SIZE>;
@group(0) @binding(2) var<$SPACE> t_norm: array<vec4<f32>$NORM_SIZE>;  // if NORM
@group(0) @binding(3) var<storage, read_write> t_out: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> t_sizes: array<f32>;  // if PACKED

// In steps, or (their size being 1) as it is.
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
      t_out[(to + i) * 2] = bitcast<vec4<u32>>(upper * size);
      t_out[(to + i) * 2 + 1] = bitcast<vec4<u32>>(lower * size);
    }
  }
  if (lane == 0) { t_sizes[params.first + at] = size; }  // if PACKED
}
