// A logit as in ops/choice.py: its distance below the largest logit, and the sums that the sampler's settings ask for.
// include: logit_weight
@group(0) @binding(7) var<storage, read> t_how: array<u32>;

const BINS: u32 = 256u;

// The difference and the product are rounded one by one: abs() keeps compilers from fusing them.
fn steps_of(x: vec4<f32>, top: f32) -> vec4<u32> {
  let far = abs(vec4(top) - x) * bitcast<f32>(t_how[0]);
  return min(vec4<u32>(min(far, vec4(f32(FAR)))), vec4(FAR));
}

// Four conditions as bits to loop over: software adapters skip code that no lane enters only if it is a loop.
fn bits_of(which: vec4<bool>) -> u32 {
  let bits = select(vec4(0u), vec4(1u, 2u, 4u, 8u), which);
  return bits.x + bits.y + bits.z + bits.w;
}

fn minus(a: Sum, b: Sum) -> Sum {
  return Sum(a.count - b.count, a.low - b.low, a.high - b.high - select(0u, 1u, a.low < b.low));
}

fn least(a: Sum, b: Sum) -> Sum {
  if (less(b, a)) { return b; }
  return a;
}

fn goal_p(sum: Sum) -> Sum { return reach_p(sum, t_how[3]); }
fn goal_draw(sum: Sum) -> Sum { return reach_draw(sum, t_how[4]); }

fn by_k(all: Sum) -> bool { return t_how[2] < all.count; }
fn by_p() -> bool { return t_how[3] < 0x80000000u; }
fn by_m() -> bool { return t_how[1] < FAR - 1u; }
