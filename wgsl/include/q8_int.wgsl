// Activations as 8-bit steps from the zero point, -255..255, for q4_strips.wgsl.
// One 32-bit product computes two terms of a dot product. A masked word holds the nibbles of k and k + 4 as n0 + n4 2^16,
// and x comes as x4 + x0 2^16, so their product mod 2^32 holds n0 x0 + n4 x4 in its upper half and n0 x4 in its lower half.
// Four such products add up to at most 8 * 15 * 255 = 30600 in either half, so the sums are exact once the lower half is
// rounded off.
struct X { v: array<vec4<u32>, 4>, sum: i32, square: f32 }

fn column(w: vec4<u32>, x: Rows) -> array<f32, ROWS> {
  const PAIR = vec4(0x000f000fu);
  let n = array(w & PAIR, (w >> vec4(4u)) & PAIR, (w >> vec4(8u)) & PAIR, (w >> vec4(12u)) & PAIR);
  var d: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) { // unroll
    let p = n[0] * x[r].v[0] + n[1] * x[r].v[1] + n[2] * x[r].v[2] + n[3] * x[r].v[3] + vec4(0x8000u);
    let h = bitcast<vec4<i32>>(p) >> vec4(16u);
    d[r] = f32(h.x + h.y + h.z + h.w + x[r].sum);
  }
  return d;
}

// The two x of each pair, at k (upper half) and k + 4 (lower half).
fn lower(pairs: vec4<u32>) -> vec4<i32> { return bitcast<vec4<i32>>(pairs << vec4(16u)) >> vec4(16u); }
fn upper(pairs: vec4<u32>) -> vec4<i32> { return (bitcast<vec4<i32>>(pairs) - lower(pairs)) >> vec4(16u); }
