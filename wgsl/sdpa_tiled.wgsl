// Causal attention for prompts on GPUs: online softmax over caches of rows [position, key head, D], with keys and values in
// workgroup memory. A workgroup serves a tile of 32 neighbouring queries of one key head (rows, and in each row the query
// heads that share the key head) and reads 32 positions at a time, so each cache row is read once for 32 queries.
// Invocation (group, lane) has four queries: their scores at every LANES-th position, and every LANES-th cell of their
// results. As in sdpa_rows.wgsl, if not WHOLE a context of more than SPAN positions is split over params.splits workgroups.
// include: slots
struct Params { seq: u32, splits: u32, pos_slot: u32, scale: f32 }

const HEADS: u32 = 4;  // plan: query heads
const KV_HEADS: u32 = 2;  // plan: key heads
const D: u32 = 64;  // plan: head_dim
const LANES: u32 = 8;  // plan: invocations that share four queries
const VALUES: u32 = 16;  // plan: positions whose values are in workgroup memory together
const WHOLE: u32 = 1;  // plan: 1 if one workgroup reads the whole context, however long it is
const SPAN: u32 = 128;  // plan: positions that one workgroup reads alone
alias CELL = vec4<f32>;  // plan: four elements in a cache

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_q: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> t_kc: array<CELL>;
@group(0) @binding(4) var<storage, read> t_vc: array<CELL>;
@group(0) @binding(5) var<storage, read_write> t_out: array<vec4<f32>>;  // [query, D]
// Of each split, [query, split]: the sums, not yet divided; the largest score and the sum of weights.
// if WHOLE == 0: @group(0) @binding(6) var<storage, read_write> t_part: array<vec4<f32>>;
// if WHOLE == 0: @group(0) @binding(7) var<storage, read_write> t_stat: array<vec2<f32>>;

const EACH: u32 = HEADS / KV_HEADS;
const D4: u32 = D / 4;
const WG: u32 = 8 * LANES;
const TILE: u32 = 32;  // queries, and positions
const POINTS: u32 = TILE / LANES;  // positions per invocation
const PLACES: u32 = (D4 + LANES - 1) / LANES;  // cells per invocation
const PART: u32 = 4;  // cells of queries and keys that are in workgroup memory together
const COPIES: u32 = PART * TILE / WG;  // of them per invocation
const ROW: u32 = TILE + 2;  // stores of neighbours would meet in one bank without the 2
const TALL: u32 = (D4 + TILE - 1) / TILE;  // rows of workgroup memory per value, or
const BESIDE: u32 = VALUES * TALL / (2 * PART);  // values per row
const SPACE: u32 = TILE / BESIDE;  // cells of a row for each
const LOWEST: f32 = -1e30;
const MASKED: f32 = -3e38;  // far below LOWEST, so its weight is 0 even if no score is above LOWEST

// Rows of queries, then of keys: [cell][query or position]. Then, in their place, values: [position][cell].
// Compilers check every index that is not constant; arrays of arrays keep those few.
var<workgroup> stage: array<array<vec4<f32>, ROW>, 2 * PART>;
var<workgroup> weights: array<array<array<vec4<f32>, VALUES>, 8>, TILE / VALUES>;  // [.][group][position] of four queries
var<workgroup> shares: array<array<vec4<f32>, LANES>, 8>;  // what each invocation knows of its four queries

fn wide(cell: CELL) -> vec4<f32> {
  return cell;  // plan WIDE is cell
}
fn add_dot(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let item = wid.y * count.x + wid.x;
  let queries = params.seq * EACH;  // of a key head
  let tiles = (queries + TILE - 1) / TILE;
  let pos = slot(params.pos_slot);
  let context = pos + params.seq;
  let splits = select(1, min(params.splits, (context + TILE - 1) / TILE), WHOLE == 0 && context > SPAN);
  if (item >= tiles * KV_HEADS || wid.z >= splits) { return; }
  let kv = item % KV_HEADS;
  let first = (tiles - 1 - item / KV_HEADS) * TILE;  // the last rows, which see the most, begin first
  let keys = pos + (min(first + TILE, queries) - 1) / EACH + 1;  // that the last query sees
  let lane = local % LANES;
  let group = local / LANES;
  let seen = pos + min(first + group * 4 + vec4(0u, 1u, 2u, 3u), vec4(queries - 1)) / EACH + 1;  // by each query
  var from_q: array<u32, COPIES>;
  for (var n = 0u; n < COPIES; n++) { // unroll
    let query = min(first + (n * WG + local) / PART, queries - 1);
    from_q[n] = (query / EACH * HEADS + kv * EACH + query % EACH) * D4;
  }
  var top = vec4(LOWEST);
  var total = vec4<f32>();
  var acc: array<array<vec4<f32>, PLACES>, 4>;
  for (var at = wid.z * TILE; at < keys; at += splits * TILE) {
    var from_k: array<u32, COPIES>;
    for (var n = 0u; n < COPIES; n++) { // unroll
      from_k[n] = (min(at + (n * WG + local) / PART, keys - 1) * KV_HEADS + kv) * D4;
    }
    var score = array<vec4<f32>, POINTS>();  // at each position, of the four queries
    for (var part = 0u; part < D4; part += PART) {
      let cell = min(part + local % PART, D4 - 1);
      let inside = D4 % PART == 0 || part + local % PART < D4;
      for (var n = 0u; n < COPIES; n++) { // unroll
        let row = (n * WG + local) / PART;
        stage[local % PART][row] = select(vec4<f32>(), t_q[from_q[n] + cell], inside);
        stage[PART + local % PART][row] = select(vec4<f32>(), wide(t_kc[from_k[n] + cell]), inside);
      }
      workgroupBarrier();
      for (var c = 0u; c < PART; c++) { // unroll
        let q0 = stage[c][group * 4];
        let q1 = stage[c][group * 4 + 1];
        let q2 = stage[c][group * 4 + 2];
        let q3 = stage[c][group * 4 + 3];
        for (var p = 0u; p < POINTS; p++) { // unroll
          let k = stage[PART + c][p * LANES + lane];
          let s = score[p];
          score[p] = vec4(add_dot(s.x, q0, k), add_dot(s.y, q1, k), add_dot(s.z, q2, k), add_dot(s.w, q3, k));
        }
      }
      workgroupBarrier();
    }
    var high = top;
    for (var p = 0u; p < POINTS; p++) { // unroll
      score[p] = select(vec4(MASKED), score[p] * params.scale, vec4(at + p * LANES + lane) < seen);
      high = max(high, score[p]);
    }
    shares[group][lane] = high;
    workgroupBarrier();
    for (var l = 0u; l < LANES; l++) { // unroll
      high = max(high, shares[group][l]);
    }
    let shrink = exp(top - high);
    top = high;
    total *= shrink;
    for (var s = 0u; s < PLACES; s++) { // unroll
      for (var r = 0u; r < 4; r++) { // unroll
        acc[r][s] *= shrink[r];
      }
    }
    for (var p = 0u; p < POINTS; p++) { // unroll
      let weight = exp(score[p] - high);
      total += weight;
      weights[(p * LANES + lane) / VALUES][group][(p * LANES + lane) % VALUES] = weight;
    }
    for (var part = 0u; part < TILE / VALUES; part++) {
      for (var n = 0u; n < 2 * COPIES; n++) { // unroll
        let row = n * (WG / TILE) + local / TILE;
        let j = row / TALL * BESIDE + local % TILE / SPACE;
        let cell = min(row % TALL * TILE + local % SPACE, D4 - 1);
        let from_v = (min(at + part * VALUES + j, keys - 1) * KV_HEADS + kv) * D4 + cell;
        stage[row][local % TILE] = wide(t_vc[from_v]);
      }
      workgroupBarrier();
      if (at + TILE <= pos + first / EACH + 1) {  // every query sees every position
        for (var j = 0u; j < VALUES; j++) { // unroll
          let weight = weights[part][group][j];
          for (var s = 0u; s < PLACES; s++) { // unroll
            let v = stage[j / BESIDE * TALL + s * LANES / TILE][j % BESIDE * SPACE + s * LANES % TILE + lane];
            for (var r = 0u; r < 4; r++) { // unroll
              acc[r][s] = fma(vec4(weight[r]), v, acc[r][s]);
            }
          }
        }
      } else {
        for (var j = 0u; j < VALUES; j++) {
          let weight = weights[part][group][j];
          for (var s = 0u; s < PLACES; s++) { // unroll
            let v = stage[j / BESIDE * TALL + s * LANES / TILE][j % BESIDE * SPACE + s * LANES % TILE + lane];
            for (var r = 0u; r < 4; r++) { // unroll
              // A weight of 0 would not do: 0 * NaN is NaN.
              acc[r][s] = fma(vec4(weight[r]), select(vec4<f32>(), v, at + part * VALUES + j < seen[r]), acc[r][s]);
            }
          }
        }
      }
      workgroupBarrier();
    }
  }
  shares[group][lane] = total;
  workgroupBarrier();
  var sum = vec4<f32>();
  for (var l = 0u; l < LANES; l++) { sum += shares[group][l]; }
  for (var r = 0u; r < 4; r++) { // unroll
    let query = first + group * 4 + r;
    if (query < queries) {
      let to = query / EACH * HEADS + kv * EACH + query % EACH;
      // if WHOLE == 0: if (splits > 1 && lane == 0) { t_stat[to * params.splits + wid.z] = vec2(top[r], sum[r]); }
      for (var s = 0u; s < PLACES; s++) { // unroll
        let cell = s * LANES + lane;
        if (cell < D4) {
          if (splits == 1) { t_out[to * D4 + cell] = acc[r][s] / sum[r]; }
          // if WHOLE == 0: else { t_part[(to * params.splits + wid.z) * D4 + cell] = acc[r][s]; }
        }
      }
    }
  }
}
