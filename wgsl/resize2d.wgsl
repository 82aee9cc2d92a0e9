// An image at another size, from the nearest or the four surrounding elements. size = input height, width, output height,
// width.
const BILINEAR: u32 = 1;  // plan
const CORNERS: u32 = 0;  // plan: 1 if corners are aligned

struct Params { count: u32, size: vec4<u32>, step_y: f32, step_x: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<f32>;

// The place among n elements that element k of the output comes from.
fn source(k: u32, step: f32, n: u32) -> f32 {
  let place = select((f32(k) + 0.5) * step - 0.5, f32(k) * step, CORNERS == 1u || BILINEAR == 0u);
  return clamp(place, 0.0, f32(n - 1u));
}

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let ox = i % params.size.w;
  let oy = i / params.size.w % params.size.z;
  let base = i / (params.size.w * params.size.z) * params.size.x * params.size.y;
  let n = params.size.xy;
  let y = source(oy, params.step_y, n.x);
  let x = source(ox, params.step_x, n.y);
  let y0 = u32(y);
  let x0 = u32(x);
  if (BILINEAR == 0u) {
    t_out[i] = t_x[base + y0 * n.y + x0];
    return;
  }
  let y1 = min(y0 + 1u, n.x - 1u);
  let x1 = min(x0 + 1u, n.y - 1u);
  let top = mix(t_x[base + y0 * n.y + x0], t_x[base + y0 * n.y + x1], x - f32(x0));
  let low = mix(t_x[base + y1 * n.y + x0], t_x[base + y1 * n.y + x1], x - f32(x0));
  t_out[i] = mix(top, low, y - f32(y0));
}
