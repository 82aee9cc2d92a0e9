// out = EXPR of a and b of one shape, four elements per lane.
struct Params { count: u32, first: f32, second: f32, int_first: i32, int_second: i32 }

// include: binary_body
fn run(i: u32) {
  if (i < params.count) { put(i, i, i); }
}
