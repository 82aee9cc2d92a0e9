// x for few_x_staged.wgsl, multiplied by the norm's weight. Compilers that check an index do so once for each 8 k.
// include: few_float
@group(0) @binding(3) var<storage, read> t_x: array<Word>;
@group(0) @binding(4) var<storage, read> t_norm: array<Word>;  // if NORM

// Word `at` of all rows, which is word `word` of its row.
fn ready_word(at: u32, word: u32) -> Word {
  var x = t_x[at];
  square = fma(x.a.w, x.a.w, fma(x.a.z, x.a.z, fma(x.a.y, x.a.y, fma(x.a.x, x.a.x, square))));  // if NORM
  square = fma(x.b.w, x.b.w, fma(x.b.z, x.b.z, fma(x.b.y, x.b.y, fma(x.b.x, x.b.x, square))));  // if NORM
  x = Word(x.a * t_norm[word].a, x.b * t_norm[word].b);  // if NORM
  return x;
}
