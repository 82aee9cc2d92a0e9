// The id of the largest logit of each row, for calls that draw no token. On a software adapter the draws of pick_rows.wgsl take
// time even if every row skips them. One workgroup per row.
// include: row_best
// include: row_grid
fn run(row: u32, lane: u32) {
  if (row >= params.rows) { return; }
  let largest = best_of(row * params.count, lane);
  if (lane == 0u) { store(row, id_of(largest)); }
}
