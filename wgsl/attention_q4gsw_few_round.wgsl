// include: q4_few
// include: q4_out_qkv_buffer
// include: q8_few
