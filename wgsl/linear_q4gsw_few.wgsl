// include: few_x_staged
// include: few_words
// include: q4_out_rows
