// out = word, the bits of a float or an integer.
struct Params { count: u32, word: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> t_out: array<u32>;

// include: lane_grid
fn run(i: u32) {
  if (i < params.count) { t_out[i] = params.word; }
}
