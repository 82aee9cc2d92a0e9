// Activations in f32 for q4_strips.wgsl. The file that includes this one says where they are.
const NORM: u32 = 0;  // plan: 1 if the kernel normalises its row
@group(0) @binding(4) var<uniform> t_norm: array<vec4<f32>, K / 4>;  // if NORM

// One block of a row of x. v[j] holds the four x that are multiplied by nibble j of the four words, scaled by 16^-j, so
// that the nibble needs a mask but no shift. sum is -8 times the sum of the block, because nibble 8 stands for zero.
// square is the sum of squares, for the norm.
struct X { v: array<vec4<f32>, 8>, sum: f32, square: f32 }

fn column(w: vec4<u32>, x: Rows) -> array<f32, ROWS> {
  var d: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) { // unroll
    d[r] = x[r].sum;
  }
  for (var j = 0u; j < 8; j++) { // unroll
    let v = vec4<f32>(select(w & vec4(15u << (4 * j)), w >> vec4(28u), vec4(j == 7)));
    for (var r = 0u; r < ROWS; r++) { // unroll
      d[r] += dot(v, x[r].v[j]);
    }
  }
  return d;
}

fn prepare(lane: u32) {}
