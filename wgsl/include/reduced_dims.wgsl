// The elements that one output is computed from: `base_of` is the first of them, `place_of` number i. `params` has the dims that
// stay and those that are reduced.
fn base_of(item: u32) -> u32 {
  var at = 0u;
  var left = item;
  for (var r = params.outer_rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.outer_dims[d >> 2u][d & 3u];
    at += left % size * params.outer_strides[d >> 2u][d & 3u];
    left /= size;
  }
  return at;
}

fn place_of(base: u32, i: u32) -> u32 {
  var at = base;
  var left = i;
  for (var r = params.rank; r > 0u; r--) {
    let d = r - 1u;
    let size = params.dims[d >> 2u][d & 3u];
    at += left % size * params.strides[d >> 2u][d & 3u];
    left /= size;
  }
  return at;
}
