// Attention of one query: lanes stride over the keys, each with its own online softmax, and the workgroup joins them.
const DIM: u32 = 64;  // plan: head_dim
const MASK: u32 = 1;  // plan: 1 if there is a mask
const ROWS_FIRST: u32 = 0;  // plan: 0 if dims are [batch, heads, rows, DIM], 1 if they are [1, rows, heads, DIM]
struct Params { queries: u32, heads: u32, rows: u32, keys: u32, share: u32, scale: f32, mask_strides: vec4<u32> }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_q: array<f32>;
@group(0) @binding(2) var<storage, read> t_k: array<f32>;
@group(0) @binding(3) var<storage, read> t_v: array<f32>;
@group(0) @binding(4) var<storage, read> t_mask: array<f32>;
@group(0) @binding(5) var<storage, read_write> t_out: array<f32>;

var<workgroup> tops: array<f32, WG>;
var<workgroup> sums: array<f32, WG>;
var<workgroup> part: array<f32, WG>;

// include: row_grid
fn run(item: u32, lane: u32) {
  if (item >= params.queries) { return; }
  let head = item / params.rows;
  let place = vec3<u32>(head / params.heads, head % params.heads, item % params.rows);
  let mask_base = dot(place, params.mask_strides.xyz);
  var own = item * DIM;
  var first = head / params.share * params.keys * DIM;  // `share` query heads have the same keys
  var next = DIM;
  if (ROWS_FIRST == 1u) {
    own = (item % params.rows * params.heads + head) * DIM;
    first = head / params.share * DIM;
    next = params.heads / params.share * DIM;
  }
  var q: array<f32, DIM>;
  for (var d = 0u; d < DIM; d++) { q[d] = t_q[own + d] * params.scale; }
  var acc: array<f32, DIM>;
  var top = -3.4028234e38;
  var sum = 0.0;
  for (var j = lane; j < params.keys; j += WG) {
    let at = first + j * next;
    var bias = 0.0;
    if (MASK == 1u) { bias = t_mask[mask_base + j * params.mask_strides.w]; }
    if (bitcast<u32>(bias) == 0xff800000u) { continue; }  // -inf: a weight of 0 would not do, because 0 * NaN is NaN
    var score = 0.0;
    for (var d = 0u; d < DIM; d++) { score = fma(q[d], t_k[at + d], score); }
    score += bias;
    let peak = max(top, score);
    let keep = exp(top - peak);
    let p = exp(score - peak);
    sum = sum * keep + p;
    for (var d = 0u; d < DIM; d++) { acc[d] = acc[d] * keep + p * t_v[at + d]; }
    top = peak;
  }
  tops[lane] = top;
  workgroupBarrier();
  var peak = tops[0];
  for (var l = 1u; l < WG; l++) { peak = max(peak, tops[l]); }
  let keep = exp(top - peak);
  sums[lane] = sum * keep;
  workgroupBarrier();
  var total = 0.0;
  for (var l = 0u; l < WG; l++) { total += sums[l]; }
  for (var d = 0u; d < DIM; d++) {
    part[lane] = acc[d] * keep;
    workgroupBarrier();
    if (lane == d % WG) {
      var value = 0.0;
      for (var l = 0u; l < WG; l++) { value += part[l]; }
      t_out[own + d] = value / total;
    }
    workgroupBarrier();
  }
}
