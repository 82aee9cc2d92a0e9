// Sums every score over its eight lanes, in workgroup memory: each lane adds up some of the scores for all eight.
const LANES: u32 = GROUPS * 8;
var<workgroup> shares: array<f32, SCORES * LANES>;

fn sum8(parts: array<f32, SCORES>, lane: u32) -> array<f32, SCORES> {
  workgroupBarrier();  // the scores before may still be read
  for (var i = 0u; i < SCORES; i++) { // unroll
    shares[i * LANES + lane] = parts[i];
  }
  workgroupBarrier();
  let first = lane / 8 * 8;
  for (var i = lane % 8; i < SCORES; i += 8u) {
    let at = i * LANES + first;
    shares[at] += shares[at + 1] + shares[at + 2] + shares[at + 3]
      + shares[at + 4] + shares[at + 5] + shares[at + 6] + shares[at + 7];
  }
  workgroupBarrier();
  var s = array<f32, SCORES>();
  for (var i = 0u; i < SCORES; i++) { // unroll
    s[i] = shares[i * LANES + first];
  }
  return s;
}
