// The rows of a batch whose caches are buffers, and the rotary embedding of a row.
// include: row_place
const HEADS: u32 = 4;  // plan: query heads
const KV_HEADS: u32 = 2;  // plan: key heads
const D: u32 = 64;  // plan: head_dim
const D4: u32 = D / 4;
const TABLE: u32 = 32;  // plan: columns of the cosine and sine tables
const HALVES: u32 = 0;  // plan: 1 if the tables pair the halves of a head

@group(0) @binding(3) var<storage, read> t_x: array<f32>;
@group(0) @binding(4) var<storage, read> t_cos: array<f32>;
@group(0) @binding(5) var<storage, read> t_sin: array<f32>;

// Elements 4 at to 4 at + 3 of t_x, which are some of a head's, rotated for position p.
fn turned(at: u32, p: u32) -> vec4<f32> {
  let d = at % D4 * 4;
  let x = vec4(t_x[4 * at], t_x[4 * at + 1], t_x[4 * at + 2], t_x[4 * at + 3]);
  if (HALVES == 0) {
    let i = p * TABLE + d / 2;
    let c = vec2(t_cos[i], t_cos[i + 1]);
    let s = vec2(t_sin[i], t_sin[i + 1]);
    return vec4(x.x * c.x - x.y * s.x, x.x * s.x + x.y * c.x, x.z * c.y - x.w * s.y, x.z * s.y + x.w * c.y);
  }
  var y = x;
  for (var e = 0u; e < 4; e++) { // unroll
    let i = d + e;
    if (i < TABLE) {
      let is_first = i < TABLE / 2;
      let partner = t_x[select(4 * at + e - TABLE / 2, 4 * at + e + TABLE / 2, is_first)];
      y[e] = x[e] * t_cos[p * TABLE + i] + select(partner, -partner, is_first) * t_sin[p * TABLE + i];
    }
  }
  return y;
}
