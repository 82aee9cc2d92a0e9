// One workgroup a row; lanes stride over the row, then reduce in workgroup memory.
struct Params { rows: u32, width: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> t_out: array<f32>;

var<workgroup> part: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = wid.y * count.x + wid.x;
  if (row >= params.rows) { return; }
  let base = row * params.width;
  var sum = 0.0;
  for (var i = lane; i < params.width; i += WG) {
    let v = t_x[base + i];
    sum = fma(v, v, sum);
  }
  part[lane] = sum;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
  }
  let scale = inverseSqrt(part[0] / f32(params.width) + params.eps);
  for (var i = lane; i < params.width; i += WG) {
    t_out[base + i] = t_x[base + i] * scale * t_weight[i];
  }
}
