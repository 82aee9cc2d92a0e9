// x for few_x_staged.wgsl with ROUND.
// include: few_float
// include: q8_row

// Word `at` of all rows, which is word `word` of its row, in steps.
fn ready_word(at: u32, word: u32) -> Word {
  return Word(steps(t_x[at * 2], weight(word * 2)), steps(t_x[at * 2 + 1], weight(word * 2 + 1)));
}
