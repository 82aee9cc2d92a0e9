// Joins what 8 lanes found in a row, in a subgroup of at least 8.
fn row_joined(found: Row, lane: u32) -> Row {
  var r = found;
  for (var by = 1u; by < 8u; by *= 2u) {
    r.low = min(r.low, subgroupShuffleXor(r.low, by));
    r.high = max(r.high, subgroupShuffleXor(r.high, by));
    r.square += subgroupShuffleXor(r.square, by);
  }
  return r;
}
