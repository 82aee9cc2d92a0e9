// What all kernels of a pick share: a row's logits four at a time, as whole numbers that can be compared.
const FAR: u32 = 16777215u;
const NEVER: u32 = 8388607u; // the key of -infinity
struct Params { base: u32, count: u32, chunk: u32, parts: u32 }
// The largest of a chunk, and the least that is the largest of all that a lane saw.
struct Best { key: u32, index: u32, floor: u32 }

@group(0) @binding(0) var<uniform> params: Params;

// Floats as whole numbers in the same order: zeros alike, NaN above infinity. No driver flushes or reorders these.
fn ordered(x: vec4<f32>) -> vec4<u32> {
  let bits = bitcast<vec4<u32>>(x);
  let size = bits & vec4(0x7fffffffu);
  let above = select(bits | vec4(0x80000000u), ~bits, bits > vec4(0x80000000u));
  return select(above, vec4(0xffffffffu), size > vec4(0x7f800000u));
}

fn finite(key: u32) -> bool { return key > NEVER && key < 0xff800000u; }

fn value_of(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

// Ids of the i-th four of the row, which may start and end within one; those outside are not under params.count.
fn ids_of(i: u32) -> vec4<u32> { return vec4(0u, 1u, 2u, 3u) + 4u * i - (params.base & 3u); }

fn fours() -> u32 { return ((params.base & 3u) + params.count + 3u) / 4u; }
