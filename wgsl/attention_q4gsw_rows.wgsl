// include: q4_strips
// include: q4_out_qkv
// include: q4_x_image
