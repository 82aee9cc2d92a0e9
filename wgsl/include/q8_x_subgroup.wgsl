// include: q8_packed
// include: q8_shared
fn load_x(row: u32, b: u32, lane: u32) -> X {
  let at = row * (K / 8) + b * 4 + lane % 8 / 2;
  let c = lane % 2 * 2;
  let pairs = vec4(t_x[at][c], t_x[at][c + 1], 0u, 0u);
  return shared_x(upper(pairs).xy, lower(pairs).xy);
}
