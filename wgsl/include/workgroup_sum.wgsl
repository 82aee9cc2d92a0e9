// The sum of a value over the WG lanes of a workgroup.
var<workgroup> part: array<f32, WG>;

fn total(value: f32, lane: u32) -> f32 {
  workgroupBarrier();
  part[lane] = value;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
  }
  return part[0];
}
