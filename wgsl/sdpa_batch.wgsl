// Causal attention of a batch over caches in buffers, with online softmax. A workgroup serves one row and SHARE query heads
// of one key head, WG positions at a time: for scores a lane owns a position, for values cells of the result.
struct Params { rows: u32, pos_slot: u32, scale: f32 }
@group(0) @binding(0) var<uniform> params: Params;
// include: rows_cache
const SHARE: u32 = 2;  // plan: query heads per workgroup
const WG: u32 = 64;  // plan: invocations per workgroup
alias CELL = vec4<f32>;  // plan: four elements in a buffer

@group(0) @binding(6) var<storage, read> t_kc: array<CELL>;
@group(0) @binding(7) var<storage, read> t_vc: array<CELL>;
@group(0) @binding(8) var<storage, read_write> t_out: array<vec4<f32>>;

const CELLS: u32 = SHARE * D4;
const PLACES: u32 = (CELLS + WG - 1) / WG;
const LOWEST: f32 = -1e30;

var<workgroup> q: array<vec4<f32>, CELLS>;
var<workgroup> weights: array<f32, SHARE * WG>;
var<workgroup> top: array<f32, SHARE>;
var<workgroup> total: array<f32, SHARE>;
var<workgroup> shrink: array<f32, SHARE>;

fn wide(cell: CELL) -> vec4<f32> {
  return cell;  // plan WIDE is cell
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let item = wid.y * count.x + wid.x;
  let row = item / (HEADS / SHARE);
  if (row >= params.rows) { return; }
  let head = item % (HEADS / SHARE) * SHARE;
  let kv = head / (HEADS / KV_HEADS);
  let place = place_of(row);
  let pos = place.position;
  for (var c = lane; c < CELLS; c += WG) { q[c] = turned((row * HEADS + head) * D4 + c, pos) * params.scale; }
  for (var r = lane; r < SHARE; r += WG) {
    top[r] = LOWEST;
    total[r] = 0.0;
  }
  workgroupBarrier();
  var acc: array<vec4<f32>, PLACES>;
  for (var at = 0u; at <= pos; at += WG) {
    let p = min(at + lane, pos);
    let from_k = ((block_of(place, p) * 8 + p % 8) * KV_HEADS + kv) * D4;
    var score = array<f32, SHARE>();
    for (var i = 0u; i < D4; i++) {
      let k = wide(t_kc[from_k + i]);
      for (var r = 0u; r < SHARE; r++) { // unroll
        score[r] += dot(q[r * D4 + i], k);
      }
    }
    for (var r = 0u; r < SHARE; r++) { // unroll
      weights[r * WG + lane] = score[r];
    }
    workgroupBarrier();
    let live = min(WG, pos - at + 1);
    for (var r = lane; r < SHARE; r += WG) {
      var high = top[r];
      for (var j = 0u; j < live; j++) { high = max(high, weights[r * WG + j]); }
      shrink[r] = exp(top[r] - high);
      top[r] = high;
      var sum = 0.0;
      for (var j = 0u; j < live; j++) {
        let weight = exp(weights[r * WG + j] - high);
        weights[r * WG + j] = weight;
        sum += weight;
      }
      total[r] = total[r] * shrink[r] + sum;
    }
    workgroupBarrier();
    for (var s = 0u; s < PLACES; s++) { // unroll
      let c = s * WG + lane;
      if (c < CELLS) {
        let r = c / D4;
        var sum = acc[s] * shrink[r];
        for (var j = 0u; j < live; j++) {
          let from_v = ((block_of(place, at + j) * 8 + (at + j) % 8) * KV_HEADS + kv) * D4;
          sum += weights[r * WG + j] * wide(t_vc[from_v + c % D4]);
        }
        acc[s] = sum;
      }
    }
    workgroupBarrier();
  }
  for (var s = 0u; s < PLACES; s++) { // unroll
    let c = s * WG + lane;
    if (c < CELLS) { t_out[(row * HEADS + head) * D4 + c] = acc[s] / total[c / D4]; }
  }
}
