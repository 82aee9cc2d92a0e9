// Joins what the lanes of a workgroup found in a row, in workgroup memory. The file that includes this one has SHARED, at least WG, and
// may use `shared_words` itself between two barriers.
var<workgroup> shared_words: array<vec4<u32>, SHARED>;

fn part_of(lane: u32) -> vec4<f32> { return bitcast<vec4<f32>>(shared_words[lane]); }

fn row_joined(found: Row, lane: u32) -> Row {
  workgroupBarrier();  // an earlier row may still be read
  shared_words[lane] = bitcast<vec4<u32>>(vec4(found.low, found.high, found.square, 0.0));
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      let a = part_of(lane);
      let b = part_of(lane + half);
      shared_words[lane] = bitcast<vec4<u32>>(vec4(min(a.x, b.x), max(a.y, b.y), a.z + b.z, 0.0));
    }
    workgroupBarrier();
  }
  let joined = part_of(0);
  return Row(joined.x, joined.y, joined.z);
}
