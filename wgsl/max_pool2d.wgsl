// The largest element of a window, the first of equals, and its index in the plane.
// include: pool_window
@group(0) @binding(3) var<storage, read_write> t_index: array<i32>;

fn run(i: u32) {
  if (i >= params.count) { return; }
  let first = corner(i);
  let base = plane(i);
  var top = -3.4028234e38;
  var found = 0u;
  for (var ky = 0u; ky < params.taps.x; ky++) {
    for (var kx = 0u; kx < params.taps.y; kx++) {
      let at = first + vec2<i32>(vec2<u32>(ky, kx) * params.taps.zw);
      if (!inside(at)) { continue; }
      let spot = u32(at.x) * params.size.y + u32(at.y);
      let v = t_x[base + spot];
      if (v > top) {
        top = v;
        found = spot;
      }
    }
  }
  t_out[i] = top;
  t_index[i] = i32(found);
}
