// Copies of the rows of logits in which those of recent tokens are lowered, as in pick_repeat.wgsl. One workgroup per row.
struct Params { rows: u32, count: u32, words: u32 }
const DRAW: u32 = 5;  // plan: words of t_words before the penalty; its inverse and the recent ids follow
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_words: array<u32>;
@group(0) @binding(3) var<storage, read_write> t_lowered: array<f32>;

// include: row_grid
fn run(row: u32, lane: u32) {
  if (row >= params.rows) { return; }
  let first = row * params.count;
  for (var i = lane; i < params.count; i += WG) { t_lowered[first + i] = t_x[first + i]; }
  storageBarrier();
  let words = row * params.words + DRAW;
  for (var i = lane + 2; i < params.words - DRAW; i += WG) {
    let id = t_words[words + i];
    if (id < params.count) {
      let logit = t_x[first + id];
      t_lowered[first + id] = logit * bitcast<f32>(t_words[words + select(0u, 1u, logit > 0.0)]);
    }
  }
}
