// The largest element of a window, the first of equals, and its index in the plane. The last NaN counts as the largest.
// include: nan
// include: pool_window
const INDEX: u32 = 1;  // plan: 1 if the index is an output
@group(0) @binding(3) var<storage, read_write> t_index: array<i32>;  // if INDEX

fn run(i: u32) {
  if (i >= params.count) { return; }
  let first = corner(i);
  let base = plane(i);
  var top = 0.0;
  var found = -1;
  for (var ky = 0u; ky < params.taps.x; ky++) {
    for (var kx = 0u; kx < params.taps.y; kx++) {
      let at = first + vec2<i32>(vec2<u32>(ky, kx) * params.taps.zw);
      if (!inside(at)) { continue; }
      let spot = at.x * i32(params.size.y) + at.y;
      let v = t_x[base + u32(spot)];
      if (found < 0 || v > top || is_nan(v)) {
        top = v;
        found = spot;
      }
    }
  }
  t_out[i] = top;
  t_index[i] = found;  // if INDEX
}
