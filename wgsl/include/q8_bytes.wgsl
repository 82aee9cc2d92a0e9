// 4-bit weights and 8-bit activations as bytes, four values of k in a word: those of even k before those of odd k, 8 k at a time.

// Two words of nibbles as signed bytes, each 16 times its weight.
fn decoded(words: vec2<u32>) -> vec4<u32> {
  let w = words ^ vec2(0x88888888u);
  return vec4(w << vec2(4u), w).xzyw & vec4(0xf0f0f0f0u);
}

// Adds the dot product of 16 k to `sum`, in the order in which GPUs do both in one instruction.
fn add_dot(a: vec4<u32>, b: vec4<u32>, sum: i32) -> i32 {
  return dot4I8Packed(a.w, b.w) + (dot4I8Packed(a.z, b.z) + (dot4I8Packed(a.y, b.y) + (dot4I8Packed(a.x, b.x) + sum)));
}
