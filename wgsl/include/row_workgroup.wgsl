// Joins what the lanes of a workgroup found in a row, in workgroup memory.
var<workgroup> parts: array<vec4<f32>, WG>;

fn row_joined(found: Row, lane: u32) -> Row {
  workgroupBarrier();  // an earlier row may still be read
  parts[lane] = vec4<f32>(found.low, found.high, found.square, 0.0);
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      let a = parts[lane];
      let b = parts[lane + half];
      parts[lane] = vec4<f32>(min(a.x, b.x), max(a.y, b.y), a.z + b.z, 0.0);
    }
    workgroupBarrier();
  }
  return Row(parts[0].x, parts[0].y, parts[0].z);
}
