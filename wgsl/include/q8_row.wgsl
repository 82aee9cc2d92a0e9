// One f32 row for q4_few.wgsl with ROUND: the workgroup reads its row twice, for its norm and its range, before it rounds it. That
// costs less than one more dispatch, because the row is short next to the weights.
// include: q4_few
// include: q8_range
@group(0) @binding(3) var<storage, read> t_x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> t_norm: array<vec4<f32>>;  // if NORM

fn row_joined(found: Row, local: u32) -> Row {
  workgroupBarrier();  // an earlier result may still be read
  parts[local] = vec4(found.low, found.high, found.square, 0.0);
  workgroupBarrier();
  for (var n = WG; n > 1; n = (n + 1) / 2) {
    let half = (n + 1) / 2;
    if (local + half < n) {
      let a = parts[local];
      let b = parts[local + half];
      parts[local] = vec4(min(a.x, b.x), max(a.y, b.y), a.z + b.z, 0.0);
    }
    workgroupBarrier();
  }
  return Row(parts[0].x, parts[0].y, parts[0].z);
}
