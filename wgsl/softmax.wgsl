// Softmax (or its logarithm) of rows whose elements are `inner` apart: one workgroup per row.
// As in PyTorch, a row of nothing but -inf gives NaN, and a row of nothing but the lowest finite number equal parts.
const LOG: u32 = 0;  // plan: 1 for the logarithm

struct Params { rows: u32, size: u32, inner: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<f32>;

var<workgroup> part: array<f32, WG>;

// include: row_grid
fn run(row: u32, lane: u32) {
  if (row >= params.rows) { return; }
  let base = row / params.inner * params.inner * params.size + row % params.inner;
  var top = -3.4028234e38;
  for (var i = lane; i < params.size; i += WG) { top = max(top, t_x[base + i * params.inner]); }
  part[lane] = top;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] = max(part[lane], part[lane + half]); }
    workgroupBarrier();
  }
  top = part[0];
  workgroupBarrier();
  var sum = 0.0;
  for (var i = lane; i < params.size; i += WG) { sum += exp(t_x[base + i * params.inner] - top); }
  part[lane] = sum;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
  }
  let total = part[0];
  for (var i = lane; i < params.size; i += WG) {
    let at = base + i * params.inner;
    let x = t_x[at] - top;
    if (LOG == 1u) { t_out[at] = x - log(total); } else { t_out[at] = exp(x) / total; }
  }
}
