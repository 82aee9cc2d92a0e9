// Scale and zero point of each row for 8-bit steps: one workgroup per row.
const WG: u32 = 64;  // plan: invocations per workgroup
const BALANCED: u32 = 0;  // plan: 1: of the zero points from both ends of the range, take the one with the smaller error
// include: row_range
struct Params { rows: u32, width: u32, low: i32, high: i32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_scale: array<f32>;
@group(0) @binding(3) var<storage, read_write> t_zero: array<i32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = wid.y * count.x + wid.x;
  if (row >= params.rows) { return; }
  var lo = 0.0;
  var hi = 0.0;
  for (var i = lane; i < params.width; i += WG) {
    let v = t_x[row * params.width + i];
    lo = nan_min(lo, v);
    hi = nan_max(hi, v);
  }
  let q = row_qparams(lo, hi, lane);
  if (lane == 0u) {
    t_scale[row] = q.x;
    var zero = q.y;
    if (BALANCED == 1) {
      let down = least[0] / q.x;
      let up = most[0] / q.x;
      let low = f32(params.low);
      let high = f32(params.high);
      zero = round(clamp(select(high - up, low - down, low + down + (high + up) > 0.0), low, high));
    }
    t_zero[row] = i32(zero);
  }
}
