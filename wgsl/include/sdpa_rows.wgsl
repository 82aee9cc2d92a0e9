// Causal attention over caches of rows [position, key head, D], with online softmax and the context split over workgroups.
// A workgroup serves QROWS query rows and SHARE query heads of one key head, so that each cache row is read once for all of
// them. Each group of eight lanes takes one position at a time, POSITIONS positions per tile; a lane takes every eighth cell of
// a row. If not WHOLE, a context of more than SPAN positions is split: its tiles are dealt out over params.splits workgroups,
// and sdpa_reduce.wgsl joins their results. A workgroup without a tile at the live position returns at once. sum8 comes from a
// sdpa_sum_* file.
// include: slots
struct Params { seq: u32, splits: u32, pos_slot: u32, scale: f32 }

const HEADS: u32 = 4;  // plan: query heads
const KV_HEADS: u32 = 2;  // plan: key heads
const D: u32 = 64;  // plan: head_dim
const SHARE: u32 = 2;  // plan: query heads per workgroup
const QROWS: u32 = 1;  // plan: query rows per workgroup
const GROUPS: u32 = 8;  // plan: groups of eight lanes
const POSITIONS: u32 = 4;  // plan: positions per group and tile
const WHOLE: u32 = 1;  // plan: 1 if one workgroup reads the whole context, however long it is
const SPAN: u32 = 128;  // plan: positions that one workgroup reads alone
const WIDTH: u32 = 4;  // plan: elements per cell
alias V = vec4<f32>;  // plan: a cell in registers
alias CELL = vec4<f32>;  // plan: a cell in a cache

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_q: array<V>;
@group(0) @binding(3) var<storage, read> t_kc: array<CELL>;
@group(0) @binding(4) var<storage, read> t_vc: array<CELL>;
@group(0) @binding(5) var<storage, read_write> t_out: array<V>;  // [query, D]
// Of each split, [query, split]: the sums, not yet divided; the largest score and the sum of weights.
// if WHOLE == 0: @group(0) @binding(6) var<storage, read_write> t_part: array<V>;
// if WHOLE == 0: @group(0) @binding(7) var<storage, read_write> t_stat: array<vec2<f32>>;

const CELLS: u32 = D / WIDTH;
const PLACES: u32 = (CELLS + 7) / 8;
const QUERIES: u32 = SHARE * QROWS;
const SCORES: u32 = QUERIES * POSITIONS;
const TILE: u32 = GROUPS * POSITIONS;
const LOWEST: f32 = -1e30;

var<workgroup> stats: array<vec2<f32>, GROUPS>;
var<workgroup> sums: array<V, GROUPS * 8>;

fn wide(cell: CELL) -> V {
  return cell;  // plan WIDE is cell
}
fn product(a: V, b: V) -> f32 { return dot(a, b); }  // plan DOT is dot(a, b)

@compute @workgroup_size(GROUPS * 8)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let item = wid.y * count.x + wid.x;
  let row = item / (HEADS / SHARE) * QROWS;
  let head = item % (HEADS / SHARE) * SHARE;
  let kv = head / (HEADS / KV_HEADS);
  let seen = slot(params.pos_slot) + row + 1;  // by the first row
  let keys = min(seen + QROWS - 1, slot(params.pos_slot) + params.seq);  // by the last one
  let context = slot(params.pos_slot) + params.seq;
  let splits = select(1, min(params.splits, (context + TILE - 1) / TILE), WHOLE == 0 && context > SPAN);
  if (row >= params.seq || wid.z >= splits || wid.z * TILE >= keys) { return; }
  let lane = local % 8;
  let group = local / 8;
  var q: array<array<V, PLACES>, QUERIES>;
  var top: array<f32, QUERIES>;
  var total: array<f32, QUERIES>;
  var acc: array<array<V, PLACES>, QUERIES>;
  for (var r = 0u; r < QUERIES; r++) { // unroll
    top[r] = LOWEST;
    let at = (min(row + r / SHARE, params.seq - 1) * HEADS + head + r % SHARE) * CELLS;
    for (var s = 0u; s < PLACES; s++) { // unroll
      if (s * 8 + lane < CELLS) { q[r][s] = t_q[at + s * 8 + lane] * params.scale; }
    }
  }
  for (var tile = wid.z * TILE; tile < keys; tile += splits * TILE) {
    var score = array<f32, SCORES>();
    for (var t = 0u; t < POSITIONS; t++) { // unroll
      let at = (min(tile + t * GROUPS + group, keys - 1) * KV_HEADS + kv) * CELLS;
      for (var s = 0u; s < PLACES; s++) { // unroll
        let k = wide(t_kc[at + min(s * 8 + lane, CELLS - 1)]);
        for (var r = 0u; r < QUERIES; r++) { // unroll
          score[r * POSITIONS + t] += product(q[r][s], k);
        }
      }
    }
    score = sum8(score, local);
    for (var r = 0u; r < QUERIES; r++) { // unroll
      var high = top[r];
      for (var t = 0u; t < POSITIONS; t++) { // unroll
        if (tile + t * GROUPS + group < seen + r / SHARE) { high = max(high, score[r * POSITIONS + t]); }
      }
      let shrink = exp(top[r] - high);
      top[r] = high;
      total[r] *= shrink;
      for (var s = 0u; s < PLACES; s++) { // unroll
        acc[r][s] *= shrink;
      }
      for (var t = 0u; t < POSITIONS; t++) { // unroll
        let live = tile + t * GROUPS + group < seen + r / SHARE;
        score[r * POSITIONS + t] = select(0.0, exp(score[r * POSITIONS + t] - high), live);
        total[r] += score[r * POSITIONS + t];
      }
    }
    for (var t = 0u; t < POSITIONS; t++) { // unroll
      let at = (min(tile + t * GROUPS + group, keys - 1) * KV_HEADS + kv) * CELLS;
      for (var s = 0u; s < PLACES; s++) { // unroll
        let v = wide(t_vc[at + min(s * 8 + lane, CELLS - 1)]);
        for (var r = 0u; r < QUERIES; r++) { // unroll
          // A weight of 0 would not do: 0 * NaN is NaN. With one query row, every row that is read is visible.
          let live = QROWS == 1 || tile + t * GROUPS + group < seen + r / SHARE;
          acc[r][s] += score[r * POSITIONS + t] * select(V(), v, live);
        }
      }
    }
  }
  for (var r = 0u; r < QUERIES; r++) { // unroll
    if (lane == 0) { stats[group] = vec2(top[r], total[r]); }
    workgroupBarrier();
    var peak = stats[0].x;
    for (var g = 1u; g < GROUPS; g++) { peak = max(peak, stats[g].x); }
    var sum = 0.0;
    for (var g = 0u; g < GROUPS; g++) { sum += stats[g].y * exp(stats[g].x - peak); }
    let query = (row + r / SHARE) * HEADS + head + r % SHARE;
    let mine = local < 8 && row + r / SHARE < params.seq;
    // if WHOLE == 0: let part = query * params.splits + wid.z;
    // if WHOLE == 0: if (splits > 1 && mine && lane == 0) { t_stat[part] = vec2(peak, sum); }
    for (var s = 0u; s < PLACES; s++) { // unroll
      sums[local] = acc[r][s] * exp(top[r] - peak);
      workgroupBarrier();
      if (mine && s * 8 + lane < CELLS) {
        var v = sums[lane];
        for (var g = 1u; g < GROUPS; g++) { v += sums[g * 8 + lane]; }
        if (splits == 1) { t_out[query * CELLS + s * 8 + lane] = v / sum; }
        // if WHOLE == 0: else { t_part[part * CELLS + s * 8 + lane] = v; }
      }
      workgroupBarrier();
    }
  }
}
