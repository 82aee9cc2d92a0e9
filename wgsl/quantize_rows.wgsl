// Rows, normalised first where NORM is 1, rounded to the 8-bit steps of their own range and still f32: a workgroup a row.
// include: row_range
struct Params { rows: u32, width: u32, low: i32, high: i32, eps: f32, norm_eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_norm: array<f32>;
@group(0) @binding(3) var<storage, read_write> t_out: array<f32>;

var<workgroup> part: array<f32, WG>;

fn value(at: u32, i: u32, norm: f32) -> f32 {
  if (NORM == 1u) { return t_x[at + i] * norm * t_norm[i]; }
  return t_x[at + i];
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = wid.y * count.x + wid.x;
  if (row >= params.rows) { return; }
  let at = row * params.width;
  var norm = 1.0;
  if (NORM == 1u) {
    var sum = 0.0;
    for (var i = lane; i < params.width; i += WG) { sum = fma(t_x[at + i], t_x[at + i], sum); }
    part[lane] = sum;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
      if (lane < half) { part[lane] += part[lane + half]; }
      workgroupBarrier();
    }
    norm = inverseSqrt(part[0] / f32(params.width) + params.norm_eps);
  }
  var lo = 0.0;
  var hi = 0.0;
  for (var i = lane; i < params.width; i += WG) {
    let v = value(at, i, norm);
    lo = min(lo, v);
    hi = max(hi, v);
  }
  let q = row_qparams(lo, hi, lane);
  let inverse = 1.0 / q.x;
  for (var i = lane; i < params.width; i += WG) {
    let step = clamp(round(value(at, i, norm) * inverse) + q.y, f32(params.low), f32(params.high));
    t_out[at + i] = (step - q.y) * q.x;
  }
}
