// out[i] = start + i * by, in the type of the output.
const INT: u32 = 0;  // plan: 1 if the output is of integers
alias OUT = f32;  // plan

struct Params { count: u32, start: f32, by: f32, int_start: i32, int_by: i32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> t_out: array<OUT>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  if (INT == 1u) {
    t_out[i] = OUT(params.int_start + i32(i) * params.int_by);
  } else {
    t_out[i] = OUT(params.start + f32(i) * params.by);
  }
}
