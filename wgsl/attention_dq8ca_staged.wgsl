// include: q4_strips
// include: q4_out_qkv_buffer
// include: q8_x_staged
