// Bilinear samples of an image at coordinates in -1..1, with aligned corners and a repeated border.
struct Params { count: u32, channels: u32, size: vec4<u32> }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_grid: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> t_out: array<f32>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let places = params.size.z * params.size.w;
  let plane = i / places;
  let n = params.size.xy;
  let at = (t_grid[plane / params.channels * places + i % places] + 1.0) * 0.5;
  let x = clamp(at.x * f32(n.y - 1u), 0.0, f32(n.y - 1u));
  let y = clamp(at.y * f32(n.x - 1u), 0.0, f32(n.x - 1u));
  let y0 = u32(y);
  let x0 = u32(x);
  let y1 = min(y0 + 1u, n.x - 1u);
  let x1 = min(x0 + 1u, n.y - 1u);
  let base = plane * n.x * n.y;
  let top = mix(t_x[base + y0 * n.y + x0], t_x[base + y0 * n.y + x1], x - f32(x0));
  let low = mix(t_x[base + y1 * n.y + x0], t_x[base + y1 * n.y + x1], x - f32(x0));
  t_out[i] = mix(top, low, y - f32(y0));
}
