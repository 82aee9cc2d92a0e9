// The drawn id. Top-k, top-p, min-p and the draw find where they end among the listed logits by a radix search over the
// distance (24 bits, with two bits more) and then the id, six bits at a time, until one logit is left.
// include: pick
// include: pick_weight
@group(0) @binding(2) var<storage, read> t_sums: array<u32>;
@group(0) @binding(3) var<storage, read> t_ends: array<u32>;
@group(0) @binding(4) var<storage, read> t_list: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> t_out: array<i32>;
@group(0) @binding(6) var<storage, read_write> t_ids: array<i32>;  // if IDS
// include: pick_bins
// include: pick_store

struct Narrowed { before: Sum, at: u32, count: u32, item: u32 }
struct Place { id: u32, upto: Sum }

const WG: u32 = 64;  // plan: invocations per workgroup, one per bin
// 64 bins: the number of logits in each, their weight, and the index of one of them
var<workgroup> counts: array<atomic<u32>, WG>;
var<workgroup> lows: array<atomic<u32>, WG>;
var<workgroup> highs: array<atomic<u32>, WG>;
var<workgroup> items: array<u32, WG>;
var<workgroup> narrowed: Narrowed;

// Other lanes no longer read the bins: after the last read every lane has passed a workgroupUniformLoad.
fn clear(lane: u32) {
  atomicStore(&counts[lane], 0u);
  atomicStore(&lows[lane], 0u);
  atomicStore(&highs[lane], 0u);
  workgroupBarrier();
}

fn add(at: u32, item: u32) {
  let weight = weight_of(t_list[item].x / 4u);
  atomicAdd(&counts[at], 1u);
  if (atomicAdd(&lows[at], weight) + weight < weight) { atomicAdd(&highs[at], 1u); }
  items[at] = item;
}

fn bin(at: u32) -> Sum { return Sum(atomicLoad(&counts[at]), atomicLoad(&lows[at]), atomicLoad(&highs[at])); }

// The first logit that reaches the goal together with all before it.
fn find(goal: Sum, counted: bool, lane: u32) -> Place {
  if (lane == 0u) {
    let at = reaching(goal, counted);
    narrowed = Narrowed(before_bin(at), at, 0u, 0u);
  }
  var found = workgroupUniformLoad(&narrowed);
  var key = vec2(found.at, 0u);
  for (var digit = 0u; digit < 7u && found.count != 1u; digit++) {
    let of_id = digit > 2u;
    let shift = 6u * (select(2u, 6u, of_id) - digit);
    clear(lane);
    for (var i = lane; i < min(t_ends[0], params.count); i += WG) {
      let item = t_list[i];
      let word = select(item.x, item.y, of_id);
      if (word >> (shift + 6u) == select(key.x, key.y, of_id) && (!of_id || item.x == key.x)) {
        add((word >> shift) & 63u, i);
      }
    }
    workgroupBarrier();
    let own = bin(lane);
    let upto = plus(found.before, run_up(own, lane));
    let before = minus(upto, own);
    if (reaches(upto, goal, counted) && !reaches(before, goal, counted)) {
      narrowed = Narrowed(before, lane, own.count, items[lane]);
    }
    found = workgroupUniformLoad(&narrowed);
    key = select(vec2(64u * key.x + found.at, 0u), vec2(key.x, 64u * key.y + found.at), of_id);
  }
  let item = t_list[found.item];
  return Place(item.y, plus(found.before, Sum(1u, weight_of(item.x / 4u), 0u)));
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lane: u32) {
  var left = upto_bin(BINS - 1u);
  if (by_k(left)) { left = find(Sum(t_how[2], 0u, 0u), true, lane).upto; }
  if (by_p()) { left = find(goal_p(left), false, lane).upto; }
  if (by_m()) {
    let last = t_how[1];
    clear(lane);
    for (var i = lane; i < min(t_ends[0], params.count); i += WG) {
      let t = t_list[i].x / 4u;
      if (t >> 16u == last >> 16u && t <= last) { add(0u, i); }
    }
    workgroupBarrier();
    left = least(left, plus(before_bin(last >> 16u), bin(0u)));
  }
  let id = find(goal_draw(left), false, lane).id;
  if (lane == 0u) { store(select(0x7fffffff, i32(id), finite(t_ends[1]))); }
}
