// The sum over 8 consecutive lanes of a subgroup, which has at least 8.
fn sum8(v: f32) -> f32 {
  var s = v + subgroupShuffleXor(v, 1u);
  s += subgroupShuffleXor(s, 2u);
  return s + subgroupShuffleXor(s, 4u);
}
