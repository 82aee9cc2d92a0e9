// include: q4_few
// include: q4_out_rows
// include: q8_few
