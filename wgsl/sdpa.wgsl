// include: sdpa_rows
// include: sdpa_sum_workgroup
