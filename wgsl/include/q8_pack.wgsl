// 8 values of k as bytes, in the order of q8_bytes.wgsl.
fn packed(upper: vec4<f32>, lower: vec4<f32>) -> vec2<u32> {
  let a = vec4<i32>(upper);
  let b = vec4<i32>(lower);
  return vec2(pack4xI8(vec4(a.xz, b.xz)), pack4xI8(vec4(a.yw, b.yw)));
}
