// include: q4_strips
// include: q4_out_rows
// include: q4_x_image
