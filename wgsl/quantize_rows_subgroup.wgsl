// include: quantize_body
// include: row_subgroup
