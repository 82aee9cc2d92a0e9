// The largest of the chunks' logits: there are few chunks, so one lane reads all of them.
// include: pick
// include: pick_store
@group(0) @binding(2) var<storage, read> t_best: array<Best>;
@group(0) @binding(5) var<storage, read_write> t_out: array<i32>;
@group(0) @binding(6) var<storage, read_write> t_ids: array<i32>;  // if IDS

@compute @workgroup_size(1)
fn main() {
  var best = t_best[0];
  for (var i = 1u; i < params.parts; i++) {
    let other = t_best[i];
    if (other.key > best.key) { best = other; }
  }
  store(select(0x7fffffff, i32(best.index), finite(best.key)));
}
