// Causal attention of one query of one head: lanes stride over the keys, each with its own running softmax,
// and the workgroup then combines them.
// include: slots
struct Params { seq: u32, heads: u32, share: u32, row: u32, pos_slot: u32, scale: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_q: array<f32>;
@group(0) @binding(3) var<storage, read> t_kc: array<f32>;
@group(0) @binding(4) var<storage, read> t_vc: array<f32>;
@group(0) @binding(5) var<storage, read_write> t_out: array<f32>;

var<workgroup> tops: array<f32, LANES>;
var<workgroup> sums: array<f32, LANES>;
var<workgroup> part: array<f32, LANES>;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let item = wid.y * count.x + wid.x;
  if (item >= params.seq * params.heads) { return; }
  let s = item / params.heads;
  let head = item % params.heads;
  let ctx = slot(params.pos_slot) + s + 1u;
  let base_q = item * DIM;
  let base_kv = head / params.share * DIM;
  var q: array<f32, DIM>;
  for (var d = 0u; d < DIM; d++) { q[d] = t_q[base_q + d] * params.scale; }
  var acc: array<f32, DIM>;
  var top = -3.0e38;
  var sum = 0.0;
  for (var j = lane; j < ctx; j += LANES) {
    let at = j * params.row + base_kv;
    var score = 0.0;
    for (var d = 0u; d < DIM; d++) { score = fma(q[d], t_kc[at + d], score); }
    let peak = max(top, score);
    let keep = exp(top - peak);
    let p = exp(score - peak);
    sum = sum * keep + p;
    for (var d = 0u; d < DIM; d++) { acc[d] = acc[d] * keep + p * t_vc[at + d]; }
    top = peak;
  }
  tops[lane] = top;
  workgroupBarrier();
  var peak = tops[0];
  for (var l = 1u; l < LANES; l++) { peak = max(peak, tops[l]); }
  let keep = exp(top - peak);
  sums[lane] = sum * keep;
  workgroupBarrier();
  var total = 0.0;
  for (var l = 0u; l < LANES; l++) { total += sums[l]; }
  for (var d = 0u; d < DIM; d++) {
    part[lane] = acc[d] * keep;
    workgroupBarrier();
    if (lane == d % LANES) {
      var value = 0.0;
      for (var l = 0u; l < LANES; l++) { value += part[l]; }
      t_out[base_q + d] = value / total;
    }
    workgroupBarrier();
  }
}
