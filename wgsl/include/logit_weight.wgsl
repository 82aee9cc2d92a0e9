// The weight of a logit, as in ops/choice.py, from its distance below the largest logit; and sums of weights, which have two
// words.
struct Sum { count: u32, low: u32, high: u32 }

fn scaled(a: u32, x: u32) -> u32 { return (a >> 16u) * x + (((a & 0xffffu) * x) >> 16u); }

fn weight_of(t: u32) -> u32 {
  let x = (t >> 3u) & 0xffffu;
  var made = 20066583u - scaled(2155280u, x);
  made = 118988976u - scaled(made, x);
  made = 515857119u - scaled(made, x);
  made = 1488521729u - scaled(made, x);
  made = 0x80000000u - scaled(made, x);
  return (made + ((1u << (t >> 19u)) >> 1u)) >> (t >> 19u);
}

fn plus(a: Sum, b: Sum) -> Sum {
  let low = a.low + b.low;
  return Sum(a.count + b.count, low, a.high + b.high + select(0u, 1u, low < a.low));
}

fn less(a: Sum, b: Sum) -> bool { return a.high < b.high || (a.high == b.high && a.low < b.low); }

fn product(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let one = (a & 0xffffu) * (b >> 16u);
  let two = (a >> 16u) * (b & 0xffffu);
  let middle = (low >> 16u) + (one & 0xffffu) + (two & 0xffffu);
  let high = (a >> 16u) * (b >> 16u) + (one >> 16u) + (two >> 16u) + (middle >> 16u);
  return vec2((low & 0xffffu) | (middle << 16u), high);
}

// sum * share / 2^32.
fn share_of(sum: Sum, share: u32) -> Sum {
  let low = product(sum.low, share);
  let high = product(sum.high, share);
  return plus(Sum(0u, low.y, 0u), Sum(0u, high.x, high.y));
}

// The weight that top-p must reach, at least 1: its share (of 2^31) of the weight that top-k leaves.
fn reach_p(sum: Sum, share: u32) -> Sum {
  let goal = share_of(Sum(0u, sum.low << 1u, (sum.high << 1u) | (sum.low >> 31u)), share);
  return Sum(0u, max(goal.low, select(0u, 1u, goal.high == 0u)), goal.high);
}

// The weight that the draw must reach: more than its share (of 2^32) of the remaining weight.
fn reach_draw(sum: Sum, share: u32) -> Sum { return plus(share_of(sum, share), Sum(0u, 1u, 0u)); }
