// Causal attention of a batch over texture caches: each row of a call may belong to another sequence.
struct Params { pos_slot: u32, scale: f32 }
@group(0) @binding(0) var<uniform> params: Params;
// include: rows_cache
const SHARE: u32 = 2;  // plan: query heads per workgroup
const LAYER_ROWS: u32 = 16;  // plan: rows per layer of a texture
const QROWS: u32 = 1;  // query rows per workgroup
const BLOCKS: u32 = 2;  // blocks of eight positions that share the loads of q

@group(0) @binding(6) var t_kt: texture_storage_2d_array<rgba32float, read>;  // plan CACHE is rgba32float
@group(0) @binding(7) var t_vt: texture_storage_2d_array<rgba32float, read>;  // plan CACHE is rgba32float
@group(0) @binding(8) var<storage, read_write> t_out: array<vec4<f32>>;

// include: sdpa_texture_body
fn seen_by(row: u32) -> u32 { return position_of(row) + 1; }

fn block_at(row: u32, at: u32, seen: u32) -> u32 { return block_of(row, min(at, seen - 1)); }

fn query(row: u32, head: u32, i: u32, seen: u32) -> vec4<f32> {
  return turned((row * HEADS + head) * D4 + min(i, D4 - 1), seen - 1);
}

fn store(row: u32, head: u32, i: u32, y: vec4<f32>) { t_out[(row * HEADS + head) * D4 + i] = y; }
