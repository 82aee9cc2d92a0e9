// include: ready_rows_body
// include: row_workgroup
