// Counts the logits of a row in 256 bins by their distance from the largest, and sums their weights. Logits that cannot be
// kept are skipped where that is cheap to tell: by min-p, if there is no top-p; by top-k, because every lane has seen a
// logit that is at least `floor`.
const WG: u32 = 64;  // plan: invocations per workgroup
// include: pick
// include: pick_weight
@group(0) @binding(2) var<storage, read> t_x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> t_best: array<Best>;
@group(0) @binding(4) var<storage, read_write> t_sums: array<atomic<u32>>;

var<workgroup> top: atomic<u32>;
var<workgroup> floor_key: atomic<u32>;
var<workgroup> sums: array<atomic<u32>, 3u * BINS>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let part = wid.y * count.x + wid.x;
  if (lane == 0u) {
    atomicStore(&top, 0u);
    atomicStore(&floor_key, 0xffffffffu);
  }
  for (var i = lane; i < 3u * BINS; i += WG) { atomicStore(&sums[i], 0u); }
  workgroupBarrier();
  for (var i = lane; i < params.parts; i += WG) {
    atomicMax(&top, t_best[i].key);
    atomicMin(&floor_key, t_best[i].floor);
  }
  workgroupBarrier();
  let most = value_of(atomicLoad(&top));
  let least_t = steps_of(vec4(value_of(max(atomicLoad(&floor_key), NEVER))), most).x;
  let by_top_k = select(FAR, least_t + 1u, t_how[2] <= params.parts * WG);
  let end_t = min(FAR, min(by_top_k, select(t_how[1] + 1u, FAR, by_p())));
  let end = min(fours(), (part + 1u) * params.chunk);
  for (var i = part * params.chunk + lane; i < end; i += WG) {
    let t = select(vec4(FAR), steps_of(t_x[params.base / 4u + i], most), ids_of(i) < vec4(params.count));
    for (var rest = bits_of(t < vec4(end_t)); rest != 0u; rest &= rest - 1u) {
      let one = t[countTrailingZeros(rest)];
      let at = 3u * (one >> 16u);
      let weight = weight_of(one);
      atomicAdd(&sums[at], 1u);
      if (atomicAdd(&sums[at + 1u], weight) + weight < weight) { atomicAdd(&sums[at + 2u], 1u); }
    }
  }
  workgroupBarrier();
  for (var i = lane; i < BINS; i += WG) {
    let number = atomicLoad(&sums[3u * i]);
    let low = atomicLoad(&sums[3u * i + 1u]);
    if (number > 0u) {
      atomicAdd(&t_sums[3u * i], number);
      let carry = select(0u, 1u, atomicAdd(&t_sums[3u * i + 1u], low) + low < low);
      atomicAdd(&t_sums[3u * i + 2u], atomicLoad(&sums[3u * i + 2u]) + carry);
    }
  }
}
