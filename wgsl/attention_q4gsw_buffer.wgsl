// include: q4_strips
// include: q4_out_qkv_buffer
// include: q4_x_plain
