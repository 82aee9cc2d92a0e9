// include: few_bytes
// include: bytes_round
// include: q4_out_rows
