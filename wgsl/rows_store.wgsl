// Stores the keys and values of a batch in buffers.
// include: rows_lanes
alias CELL = vec4<f32>;  // plan: four elements of a cache
@group(0) @binding(7) var<storage, read_write> t_kc: array<CELL>;
@group(0) @binding(8) var<storage, read_write> t_vc: array<CELL>;

fn held(v: vec4<f32>) -> CELL {
  return v;  // plan HELD is v
}
fn store_key(block: u32, p: u32, head: u32, i: u32, v: vec4<f32>) {
  t_kc[((block * 8 + p) * KV_HEADS + head) * D4 + i] = held(v);
}
fn store_value(block: u32, p: u32, head: u32, i: u32, v: vec4<f32>) {
  t_vc[((block * 8 + p) * KV_HEADS + head) * D4 + i] = held(v);
}
