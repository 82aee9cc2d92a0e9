// The texture of f32 weights in strips of 32 columns (ops/strips.py): eight texels for each k of a strip, one per lane, with the
// weights of the lane's four columns.
const WIDTH: u32 = 8192;  // plan: texels per row of the texture, a power of two

@group(0) @binding(1) var t_w: texture_storage_2d<rgba32uint, read>;

// `line` counts the k of all strips.
fn texel(line: u32, lane: u32) -> vec4<f32> {
  let at = line * 8 + lane;
  return bitcast<vec4<f32>>(textureLoad(t_w, vec2(at % WIDTH, at / WIDTH)));
}
