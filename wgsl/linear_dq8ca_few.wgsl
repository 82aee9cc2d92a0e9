// include: few_bytes
// include: bytes_ready
// include: q4_out_rows
