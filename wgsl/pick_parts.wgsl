// The largest logit of one chunk of a row and its index, the first of equals as in numpy's argmax.
const WG: u32 = 64;  // plan: invocations per workgroup
const SUMS: u32 = 768;  // plan: words of t_sums to clear for a draw
// include: pick
@group(0) @binding(1) var<storage, read> t_x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> t_best: array<Best>;
@group(0) @binding(3) var<storage, read_write> t_sums: array<u32>;

var<workgroup> found: array<Best, WG>;

fn better(a: Best, b: Best) -> Best {
  let floor = min(a.floor, b.floor);
  if (b.key > a.key || (b.key == a.key && b.index < a.index)) { return Best(b.key, b.index, floor); }
  return Best(a.key, a.index, floor);
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let part = wid.y * count.x + wid.x;
  if (part == 0u) {
    for (var i = lane; i < SUMS; i += WG) { t_sums[i] = 0u; }
  }
  var best = Best(0u, 0xffffffffu, 0u);
  let end = min(fours(), (part + 1u) * params.chunk);
  for (var i = part * params.chunk + lane; i < end; i += WG) {
    let ids = ids_of(i);
    let keys = select(vec4(0u), ordered(t_x[params.base / 4u + i]), ids < vec4(params.count));
    for (var c = 0u; c < 4u; c++) { // unroll
      if (keys[c] > best.key) { best = Best(keys[c], ids[c], keys[c]); }
    }
  }
  found[lane] = best;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { found[lane] = better(found[lane], found[lane + half]); }
    workgroupBarrier();
  }
  if (lane == 0u && part < params.parts) { t_best[part] = found[0]; }
}
