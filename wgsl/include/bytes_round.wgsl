// One f32 row for few_bytes.wgsl, rounded by the workgroup itself.
// include: q8_row
// include: q8_pack
fn set_zeros(row: u32, local: u32) {
  look_through(0, local, WG);
  zeros[0] = zero;
}

fn ready_word(row: u32, word: u32) -> vec2<u32> {
  let at = word * 2;
  return packed(quantized(t_x[at], weight(at)), quantized(t_x[at + 1], weight(at + 1)));
}

fn step_size(r: u32) -> f32 { return size; }
