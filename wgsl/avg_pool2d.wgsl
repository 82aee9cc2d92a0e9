// Mean of a window: divided by DIVISOR if that is not 0, else by the number of taps in the image, or with INCLUDE in the
// image and its padding.
const DIVISOR: u32 = 0;  // plan
const INCLUDE: u32 = 1;  // plan
// include: pool_window
fn run(i: u32) {
  if (i >= params.count) { return; }
  let first = corner(i);
  let base = plane(i);
  var sum = 0.0;
  var taps = 0u;
  for (var ky = 0u; ky < params.taps.x; ky++) {
    for (var kx = 0u; kx < params.taps.y; kx++) {
      let at = first + vec2<i32>(vec2<u32>(ky, kx) * params.taps.zw);
      let here = inside(at);
      if (here) { sum += t_x[base + u32(at.x) * params.size.y + u32(at.y)]; }
      if (here || (INCLUDE == 1u && before_end(at, params.shift.zw))) { taps++; }
    }
  }
  if (DIVISOR > 0u) { taps = DIVISOR; }
  t_out[i] = sum / f32(taps);
}
