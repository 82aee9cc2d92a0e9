// include: q4_strips
// include: q4_out_qkv
// include: q8_x_image
