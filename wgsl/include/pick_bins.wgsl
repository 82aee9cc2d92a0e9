// Reads the bins after pick_ends.wgsl: each holds the sum up to and including itself.
fn upto_bin(at: u32) -> Sum { return Sum(t_sums[3u * at], t_sums[3u * at + 1u], t_sums[3u * at + 2u]); }

fn before_bin(at: u32) -> Sum {
  if (at == 0u) { return Sum(0u, 0u, 0u); }
  return upto_bin(at - 1u);
}

fn reaches(sum: Sum, goal: Sum, counted: bool) -> bool {
  return select(!less(sum, goal), sum.count >= goal.count, counted);
}

// The first bin that reaches a number of logits (counted) or a weight.
fn reaching(goal: Sum, counted: bool) -> u32 {
  var at = 0u;
  for (var half = BINS / 2u; half > 0u; half /= 2u) {
    if (!reaches(upto_bin(at + half - 1u), goal, counted)) { at += half; }
  }
  return at;
}

// The inclusive prefix sum over the lanes.
fn run_up(own: Sum, lane: u32) -> Sum {
  var sum = own;
  for (var far = 1u; far < WG; far *= 2u) {
    of_lanes[lane] = sum;
    workgroupBarrier();
    if (lane >= far) { sum = plus(sum, of_lanes[lane - far]); }
    workgroupBarrier();
  }
  return sum;
}
var<workgroup> of_lanes: array<Sum, WG>;
