// Rotates each pair by its (cosine, sine) of the table, which every batch starts anew: one pair per lane.
struct Params { pairs: u32, table: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> t_freqs: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> t_out: array<vec2<f32>>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.pairs) { return; }
  let x = t_x[i];
  let f = t_freqs[i % params.table];
  t_out[i] = vec2<f32>(x.x * f.x - x.y * f.y, x.x * f.y + x.y * f.x);
}
