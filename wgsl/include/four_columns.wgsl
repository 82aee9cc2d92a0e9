// Four elements of a row of b that begins at `row`; past its end the last one is repeated.
fn four(row: u32, col: u32) -> vec4<f32> {
  let at = row + min(vec4(col) + vec4(0u, 1u, 2u, 3u), vec4(params.n - 1u));  // if VEC == 0
  return vec4(t_b[at.x], t_b[at.y], t_b[at.z], t_b[at.w]);  // if VEC == 0
  // if VEC: return t_b[(row + col) / 4u];
}
