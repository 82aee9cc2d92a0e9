// Attention for many queries: a lane computes ROWS queries of one head, KEYS keys at a time with online softmax, so that each
// key and value that is loaded serves all of them.
const ROWS: u32 = 1;  // plan: queries per lane
const CELLS: u32 = 16;  // plan: vectors per head
const MASK: u32 = 1;  // plan: 1 if there is a mask
const KEYS: u32 = 4;

struct Params { items: u32, heads: u32, rows: u32, keys: u32, scale: f32, mask_strides: vec4<u32> }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> t_k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> t_v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> t_mask: array<f32>;  // if MASK
@group(0) @binding(5) var<storage, read_write> t_out: array<vec4<f32>>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.items) { return; }
  let down = (params.rows + ROWS - 1u) / ROWS;
  let head = i / down;
  let first = i % down * ROWS;
  var q: array<array<vec4<f32>, CELLS>, ROWS>;
  var acc: array<array<vec4<f32>, CELLS>, ROWS>;
  var top: array<f32, ROWS>;
  var sum: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) { // unroll
    let at = (head * params.rows + min(first + r, params.rows - 1u)) * CELLS;
    for (var d = 0u; d < CELLS; d++) { // unroll
      q[r][d] = t_q[at + d] * params.scale;
    }
    top[r] = -3.4028234e38;
  }
  for (var key = 0u; key < params.keys; key += KEYS) {
    var score = array<array<f32, KEYS>, ROWS>();  // naga would zero it once only without a value
    for (var t = 0u; t < KEYS; t++) { // unroll
      let at = (head * params.keys + min(key + t, params.keys - 1u)) * CELLS;
      for (var d = 0u; d < CELLS; d++) { // unroll
        let k = t_k[at + d];
        for (var r = 0u; r < ROWS; r++) { // unroll
          score[r][t] += dot(q[r][d], k);
        }
      }
    }
    var live: array<array<bool, KEYS>, ROWS>;
    for (var r = 0u; r < ROWS; r++) { // unroll
      var peak = top[r];
      for (var t = 0u; t < KEYS; t++) { // unroll
        let place = vec4(head / params.heads, head % params.heads, min(first + r, params.rows - 1u), min(key + t, params.keys - 1u));
        var bias = 0.0;
        bias = t_mask[dot(place, params.mask_strides)];  // if MASK
        // -inf: a weight of 0 would not do, because 0 * NaN is NaN
        live[r][t] = key + t < params.keys && bitcast<u32>(bias) != 0xff800000u;
        score[r][t] += bias;
        if (live[r][t]) { peak = max(peak, score[r][t]); }
      }
      let keep = exp(top[r] - peak);
      top[r] = peak;
      sum[r] *= keep;
      for (var d = 0u; d < CELLS; d++) { // unroll
        acc[r][d] *= keep;
      }
      for (var t = 0u; t < KEYS; t++) { // unroll
        score[r][t] = select(0.0, exp(score[r][t] - peak), live[r][t]);
        sum[r] += score[r][t];
      }
    }
    for (var t = 0u; t < KEYS; t++) { // unroll
      let at = (head * params.keys + min(key + t, params.keys - 1u)) * CELLS;
      for (var d = 0u; d < CELLS; d++) { // unroll
        let v = t_v[at + d];
        for (var r = 0u; r < ROWS; r++) { // unroll
          acc[r][d] += score[r][t] * select(vec4<f32>(), v, live[r][t]);
        }
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    if (first + r < params.rows) {
      let at = (head * params.rows + first + r) * CELLS;
      for (var d = 0u; d < CELLS; d++) { // unroll
        t_out[at + d] = acc[r][d] / sum[r];
      }
    }
  }
}
