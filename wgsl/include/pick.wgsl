// Shared by all kernels of wr.pick: the logits of a row, four at a time, as integers that compare like the floats.
const FAR: u32 = 16777215u;
const NEVER: u32 = 8388607u; // the key of -infinity
struct Params { base: u32, count: u32, chunk: u32, parts: u32 }
// The largest logit of a chunk and its index; floor is the smallest of the lanes' largest logits.
struct Best { key: u32, index: u32, floor: u32 }

@group(0) @binding(0) var<uniform> params: Params;

// Floats as integers in the same order: both zeros are equal, NaN is above infinity. Drivers do not flush or reorder
// integers.
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

// Ids of the i-th vec4 of the row, which may start and end inside a vec4. Ids outside the row are not below params.count.
fn ids_of(i: u32) -> vec4<u32> { return vec4(0u, 1u, 2u, 3u) + 4u * i - (params.base & 3u); }

fn fours() -> u32 { return ((params.base & 3u) + params.count + 3u) / 4u; }
