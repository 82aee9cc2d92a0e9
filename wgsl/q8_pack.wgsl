// include: q8_pack_body
// include: row_workgroup
