// include: quantize_body
// include: row_workgroup
