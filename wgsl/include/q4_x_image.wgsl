// Activations in a texture that holds all rows, for subgroups of at least 8. Lane j loads the four x at 4 j of a block, one
// texel, and broadcasts them. On a software adapter one texel load costs half of four uniform loads.
// include: q4_float
// include: sum8_subgroup
const STAGED_ROWS: u32 = 64;  // plan: rows per layer of the texture
@group(0) @binding(3) var t_x: texture_storage_2d_array<rgba32float, read>;

fn load_x(row: u32, b: u32, lane: u32) -> X {
  let x = textureLoad(t_x, vec2(b * 8 + lane, row % STAGED_ROWS), row / STAGED_ROWS);
  let s = x * select(vec4(1.0, 0x1p-4, 0x1p-8, 0x1p-12), vec4(0x1p-16, 0x1p-20, 0x1p-24, 1.0), lane % 2 == 1);
  var v: array<vec4<f32>, 8>;
  for (var j = 0u; j < 8; j++) { // unroll
    for (var q = 0u; q < 4; q++) { // unroll
      v[j][q] = subgroupBroadcast(s[j % 4], q * 2 + j / 4);
    }
  }
  return X(v, sum8(dot(x, vec4(-8.0))), 0.0);
}

fn across(v: f32) -> f32 { return sum8(v); }
