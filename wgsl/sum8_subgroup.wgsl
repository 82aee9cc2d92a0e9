// The sum over 8 lanes of a subgroup of at least as many.
fn sum8(v: f32) -> f32 {
  var s = v + subgroupShuffleXor(v, 1u);
  s += subgroupShuffleXor(s, 2u);
  return s + subgroupShuffleXor(s, 4u);
}
