// Sums every score over its eight lanes, in a subgroup of at least 8.
fn sum8(parts: array<f32, SCORES>, lane: u32) -> array<f32, SCORES> {
  var s = parts;
  for (var i = 0u; i < SCORES; i++) { // unroll
    s[i] += subgroupShuffleXor(s[i], 1u);
    s[i] += subgroupShuffleXor(s[i], 2u);
    s[i] += subgroupShuffleXor(s[i], 4u);
  }
  return s;
}
