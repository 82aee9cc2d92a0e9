// The multiply-adds of q4_few.wgsl in f32.
// include: q4_few
const SIZES: u32 = 0;  // plan: 1 if x is in 8-bit steps
// if SIZES: @group(0) @binding(4) var<storage, read> t_sizes: array<f32>;  // the step size of each row

struct Word { a: vec4<f32>, b: vec4<f32> }  // 8 k of x
alias Words = array<Word, 4>;  // a block

// A nibble becomes the upper bits of the mantissa of an f16 with the exponent of 16, and so 16 more than it was. Two of them,
// four k apart, are made at a time, and GPUs convert an f16 for free where a multiply-add reads it: one instruction per weight,
// with the shift. One nibble in four needs no shift if it may stay where it is, two bits lower: there it becomes 64 more.
// `w` is a word of each of four columns; a and b are the two values of x.
fn add_shifted(w: vec4<u32>, a: f32, b: f32, sum: vec4<f32>) -> vec4<f32> {
  return add_halves((w & vec4(0x03c003c0u)) | vec4(0x4c004c00u), a, b, sum);
}

fn add_in_place(w: vec4<u32>, a: f32, b: f32, sum: vec4<f32>) -> vec4<f32> {
  return add_halves((w & vec4(0x00f000f0u)) | vec4(0x54005400u), a, b, sum);
}

fn add_halves(w: vec4<u32>, a: f32, b: f32, sum: vec4<f32>) -> vec4<f32> {
  let w0 = unpack2x16float(w.x);
  let w1 = unpack2x16float(w.y);
  let w2 = unpack2x16float(w.z);
  let w3 = unpack2x16float(w.w);
  return fma(vec4(w0.y, w1.y, w2.y, w3.y), vec4(b), fma(vec4(w0.x, w1.x, w2.x, w3.x), vec4(a), sum));
}

// Nibble 8 stands for zero, so what was added to weights is 24 or 72 too much. This is a word's sum of x in units of 24.
fn total(x: Word) -> f32 {
  let s = x.a + x.b;
  return fma(3.0, s.y, s.x + s.z + s.w);
}

// The sums of a block, added to acc. `slot` is where the block is in a chunk.
fn add_block(t: Texels, slot: u32, acc: ptr<function, Sums>) {
  var d: Sums;
  for (var r = 0u; r < ROWS; r++) { // unroll
    let s = x_totals(r, slot);
    d[r] = vec4(-24.0 * (s.x + s.y + s.z + s.w));
  }
  for (var i = 0u; i < 4; i++) { // unroll
    let w = vec4(t.w[0][i], t.w[1][i], t.w[2][i], t.w[3][i]);
    for (var r = 0u; r < ROWS; r++) { // unroll
      let x = x_word(r, slot, i);
      d[r] = add_shifted(w << vec4(6u), x.a.x, x.b.x, d[r]);
      d[r] = add_in_place(w, x.a.y, x.b.y, d[r]);
      d[r] = add_shifted(w >> vec4(2u), x.a.z, x.b.z, d[r]);
      d[r] = add_shifted(w >> vec4(6u), x.a.w, x.b.w, d[r]);
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    (*acc)[r] = fma(t.scale, d[r], (*acc)[r]);
  }
}

fn prepare(row: u32, local: u32) {
  // if ROUND: look_through(0, local, WG);
}

fn factor_of(r: u32) -> f32 {
  // if SIZES: return t_sizes[r];
  // if ROUND: return size;
  return 1.0;  // if SIZES == 0 and ROUND == 0
}
