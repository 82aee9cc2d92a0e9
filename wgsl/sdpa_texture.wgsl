// Causal attention of one sequence over texture caches. Row 0 of a window is row `first_row` of the call.
// include: cache_texture
// include: slots
const SHARE: u32 = 2;  // plan: query heads per workgroup
const QROWS: u32 = 1;  // plan: query rows per workgroup
const WINDOW: u32 = 4;  // plan: query rows in the window
const BLOCKS: u32 = 2;  // plan: blocks of eight positions per turn

struct Params { rows: u32, first_row: u32, pos_slot: u32, scale: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<uniform> t_q: array<vec4<f32>, WINDOW * HEADS * D / 4>;
// Texel ((head * D/4 + d/4) * 8 + pos % 8, pos / 8) of the keys, ((head * 8 + pos % 8) * D/4 + d/4, pos / 8) of the values.
@group(0) @binding(3) var t_kt: texture_storage_2d_array<rgba32float, read>;  // plan CACHE is rgba32float
@group(0) @binding(4) var t_vt: texture_storage_2d_array<rgba32float, read>;  // plan CACHE is rgba32float
@group(0) @binding(5) var<storage, read_write> t_out: array<f32>;

// include: sdpa_texture_body
fn seen_by(row: u32) -> u32 { return slot(params.pos_slot) + params.first_row + row + 1; }

fn block_at(row: u32, at: u32, seen: u32) -> u32 { return at / 8; }

fn query(row: u32, head: u32, i: u32, seen: u32) -> vec4<f32> {
  return t_q[min((row * HEADS + head) * D4 + i, WINDOW * HEADS * D4 - 1)];
}

fn store(row: u32, head: u32, i: u32, y: vec4<f32>) {
  if (row >= params.rows) { return; }
  let o = (((params.first_row + row) * HEADS + head) * D4 + i) * 4;
  t_out[o] = y.x;
  t_out[o + 1] = y.y;
  t_out[o + 2] = y.z;
  t_out[o + 3] = y.w;
}
