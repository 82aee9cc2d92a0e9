// Computes the prefix sums of the bins, and the bins in which top-k, top-p, min-p and the draw may end. How much of a bin
// is kept is not known yet, so each later limit ends somewhere between keeping none and all of the bin before it.
// include: pick
// include: pick_weight
@group(0) @binding(2) var<storage, read> t_best: array<Best>;
@group(0) @binding(3) var<storage, read_write> t_sums: array<u32>;
@group(0) @binding(4) var<storage, read_write> t_ends: array<u32>;
// include: pick_bins

const WG: u32 = 64;  // plan: invocations per workgroup
const EACH: u32 = BINS / WG;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lane: u32) {
  var own = Sum(0u, 0u, 0u);
  for (var i = lane * EACH; i < (lane + 1u) * EACH; i++) { own = plus(own, upto_bin(i)); }
  var sum = minus(run_up(own, lane), own);
  for (var i = lane * EACH; i < (lane + 1u) * EACH; i++) {
    sum = plus(sum, upto_bin(i));
    t_sums[3u * i] = sum.count;
    t_sums[3u * i + 1u] = sum.low;
    t_sums[3u * i + 2u] = sum.high;
  }
  storageBarrier();
  if (lane != 0u) { return; }
  var top = 0u;
  for (var i = 0u; i < params.parts; i++) { top = max(top, t_best[i].key); }
  let all = upto_bin(BINS - 1u);
  var low = all;
  var high = all;
  var k_at = BINS;
  var p_from = BINS;
  var p_to = 0u;
  var m_at = BINS;
  if (by_k(all)) {
    k_at = reaching(Sum(t_how[2], 0u, 0u), true);
    low = before_bin(k_at);
    high = upto_bin(k_at);
  }
  if (by_p()) {
    p_from = reaching(goal_p(low), false);
    p_to = reaching(goal_p(high), false);
    low = before_bin(p_from);
    high = least(high, upto_bin(p_to));
  }
  if (by_m()) {
    m_at = t_how[1] >> 16u;
    low = least(low, before_bin(m_at));
    high = least(high, upto_bin(m_at));
  }
  t_ends[0] = 0u;  // number of listed logits
  t_ends[1] = top;
  t_ends[2] = k_at;
  t_ends[3] = m_at;
  t_ends[4] = p_from;
  t_ends[5] = p_to;
  t_ends[6] = reaching(goal_draw(low), false);
  t_ends[7] = reaching(goal_draw(high), false);
}
