// include: few_x_direct
// include: q4_out_rows
