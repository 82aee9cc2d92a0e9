// The next token of each row of logits, exactly as ops/choice.py chooses it; one workgroup per row. A row whose top-k is 0
// takes the largest logit. A draw counts the logits in 256 bins by the upper 8 of the 24 bits of their distance from the
// largest. Where top-k, top-p or the draw ends in a bin, that bin's logits are listed, and a search over the next 8 bits
// at a time, of the distance and then of the id, leaves one logit.
// include: logit_weight
// include: row_best
struct Narrowed { before: Sum, at: u32 }
struct Place { id: u32, upto: Sum }

@group(0) @binding(5) var<storage, read> t_words: array<u32>;
@group(0) @binding(6) var<storage, read_write> t_list: array<vec2<u32>>;

const FAR: u32 = 16777215u;
const BINS: u32 = 256u;

var<workgroup> counts: array<atomic<u32>, BINS>;
var<workgroup> lows: array<atomic<u32>, BINS>;
var<workgroup> highs: array<atomic<u32>, BINS>;
var<workgroup> upto: array<Sum, BINS>;  // sums of the 256 bins, each with all before it
var<workgroup> listed: atomic<u32>;
var<workgroup> narrowed: Narrowed;

fn value_of(key: u32) -> f32 { return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u)); }

// The difference and the product are rounded one by one: abs() keeps compilers from fusing them.
fn steps_of(x: f32, top: f32, scale: f32) -> u32 { return min(u32(min(abs(top - x) * scale, f32(FAR))), FAR); }

fn reaches(sum: Sum, goal: Sum, counted: bool) -> bool { return select(!less(sum, goal), sum.count >= goal.count, counted); }

fn clear(lane: u32) {
  workgroupBarrier();
  for (var i = lane; i < BINS; i += WG) {
    atomicStore(&counts[i], 0u);
    atomicStore(&lows[i], 0u);
    atomicStore(&highs[i], 0u);
  }
  if (lane == 0u) { atomicStore(&listed, 0u); }
  workgroupBarrier();
}

fn add(at: u32, t: u32) {
  let weight = weight_of(t);
  atomicAdd(&counts[at], 1u);
  if (atomicAdd(&lows[at], weight) + weight < weight) { atomicAdd(&highs[at], 1u); }
}

fn bin(at: u32) -> Sum { return Sum(atomicLoad(&counts[at]), atomicLoad(&lows[at]), atomicLoad(&highs[at])); }

fn before_bin(at: u32) -> Sum {
  if (at == 0u) { return Sum(0u, 0u, 0u); }
  return upto[at - 1u];
}

// The first logit that reaches the goal together with all before it.
fn find(goal: Sum, counted: bool, first: u32, top: f32, scale: f32, lane: u32) -> Place {
  clear(lane);
  if (lane == 0u) {
    var at = 0u;
    for (; at < BINS - 1u; at++) {
      if (reaches(upto[at], goal, counted)) { break; }
    }
    narrowed = Narrowed(before_bin(at), at);
  }
  var found = workgroupUniformLoad(&narrowed);
  var key = vec2(found.at, 0u);
  for (var i = lane; i < params.count; i += WG) {
    let t = steps_of(t_x[first + i], top, scale);
    if (t >> 16u == key.x && t < FAR) { t_list[first + atomicAdd(&listed, 1u)] = vec2(t, i); }
  }
  storageBarrier();
  workgroupBarrier();
  let items = min(atomicLoad(&listed), params.count);
  for (var digit = 0u; digit < 5u; digit++) {
    let of_id = digit > 1u;
    let shift = 8u * (select(1u, 4u, of_id) - digit);
    clear(lane);
    for (var i = lane; i < items; i += WG) {
      let item = t_list[first + i];
      let word = select(item.x, item.y, of_id);
      if (word >> (shift + 8u) == select(key.x, key.y, of_id) && (!of_id || item.x == key.x)) {
        add((word >> shift) & 255u, item.x);
      }
    }
    workgroupBarrier();
    if (lane == 0u) {
      var at = 0u;
      var before = found.before;
      for (; at < BINS - 1u; at++) {
        let with_bin = plus(before, bin(at));
        if (reaches(with_bin, goal, counted)) { break; }
        before = with_bin;
      }
      narrowed = Narrowed(before, at);
    }
    found = workgroupUniformLoad(&narrowed);
    key = select(vec2(256u * key.x + found.at, 0u), vec2(key.x, 256u * key.y + found.at), of_id);
  }
  return Place(key.y, plus(found.before, Sum(1u, weight_of(key.x), 0u)));
}

// include: row_grid
fn run(row: u32, lane: u32) {
  if (row >= params.rows) { return; }
  let first = row * params.count;
  let words = row * params.words;
  let largest = best_of(first, lane);
  let is_finite = finite(largest.key);
  let top_k = t_words[words + 2u];
  if (top_k == 0u || !is_finite) {
    if (lane == 0u) { store(row, id_of(largest)); }
    return;
  }
  let top = value_of(largest.key);
  let scale = bitcast<f32>(t_words[words]);
  let last = t_words[words + 1u];
  let top_p = t_words[words + 3u];
  clear(lane);
  for (var i = lane; i < params.count; i += WG) {
    let t = steps_of(t_x[first + i], top, scale);
    if (t < FAR) { add(t >> 16u, t); }
  }
  workgroupBarrier();
  if (lane == 0u) {
    var sum = Sum(0u, 0u, 0u);
    for (var i = 0u; i < BINS; i++) {
      sum = plus(sum, bin(i));
      upto[i] = sum;
    }
  }
  var left = workgroupUniformLoad(&upto[BINS - 1u]);
  if (top_k < left.count) { left = find(Sum(top_k, 0u, 0u), true, first, top, scale, lane).upto; }
  if (top_p < 0x80000000u) {
    left = find(reach_p(left, top_p), false, first, top, scale, lane).upto;
  }
  if (last < FAR - 1u) {  // min-p
    clear(lane);
    for (var i = lane; i < params.count; i += WG) {
      let t = steps_of(t_x[first + i], top, scale);
      if (t >> 16u == last >> 16u && t <= last) { add(0u, t); }
    }
    workgroupBarrier();
    let kept = plus(before_bin(last >> 16u), bin(0u));
    if (less(kept, left)) { left = kept; }
  }
  let drawn = find(reach_draw(left, t_words[words + 4u]), false, first, top, scale, lane);
  if (lane == 0u) { store(row, i32(drawn.id)); }
}
