// include: few_x_staged
// include: q8_few
// include: q4_out_rows
