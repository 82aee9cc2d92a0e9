// The texture of 4-bit weights; ops/q4_layout.py has a picture of it. A texel is 32 values of k of one column, or the
// four scales of a lane's columns.
const K: u32 = 64;  // plan: inputs
const G: u32 = 32;  // plan: inputs per group
const LANES: u32 = 8;  // plan: lanes of a strip, four columns each
const TOGETHER: u32 = 2;  // plan: strips per texture row
const PARTS: u32 = 1;  // plan: texture rows per strip, over 1 only if a strip is wider than the widest texture
const BLOCKS: u32 = K / 32;  // of 32 k: one texel per column
const GROUP_BLOCKS: u32 = G / 32;
const PITCH: u32 = (K / G + K / 8) / PARTS * LANES;

// Software adapters read a storage texture faster than a sampled one.
@group(0) @binding(2) var t_w: texture_storage_2d<rgba32uint, read>;  // if IMAGES
// if IMAGES == 0: @group(0) @binding(2) var t_w: texture_2d<u32>;

// Texel i of a row of strips. A strip that is wider than the texture continues on the next texture row.
fn texel(row: u32, i: u32) -> vec4<u32> {
  var at = vec2(i, row);
  if (PARTS > 1) { at = vec2(i % PITCH, row * PARTS + i / PITCH); }
  return texel_at(at);
}

fn texel_at(at: vec2<u32>) -> vec4<u32> {
  return textureLoad(t_w, at);  // if IMAGES
  // if IMAGES == 0: return textureLoad(t_w, at, 0);
}
