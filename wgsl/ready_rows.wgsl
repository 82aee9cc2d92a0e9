// include: ready_rows_body
// include: row_workgroup
const SHARED: u32 = WG;
