// include: q4_strips
// include: q4_out_rows
// include: q8_x_image
