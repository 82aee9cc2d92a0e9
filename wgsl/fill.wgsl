// out = value.
alias KIND = f32;  // plan

struct Params { count: u32, value: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> t_out: array<KIND>;

// include: lane_grid
fn run(i: u32) {
  if (i < params.count) { t_out[i] = KIND(params.value); }
}
