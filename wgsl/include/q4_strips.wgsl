// y = x w^T for 4-bit weights in strips of 4 * LANES columns.
// A lane owns 4 columns of each of STRIPS strips, and ROWS rows. This is the kernel of software adapters; GPUs, which need more
// invocations to be busy, have q4_few.wgsl.
// x comes through a uniform window of WINDOW rows, because on software adapters such a load is many times cheaper than one from
// storage, or through a texture. The norm before the matmul, and bias, SwiGLU and residual after it, are part of
// this kernel, because each would otherwise cost a dispatch and a round trip through memory.
// A q4_out_* file adds Params, the bindings of the outputs and store_row; a q4_x_* or q8_x_* file adds the activations: X,
// prepare, load_x, column and factor.
// include: q4_texel
const ROWS: u32 = 1;  // plan: rows per workgroup
const STRIPS: u32 = 2;  // plan: strips per workgroup

alias Rows = array<X, ROWS>;
alias Sums = array<vec4<f32>, ROWS>;  // of a lane's four columns

// Where a strip is: its texture row, and its place in that row.
struct Place { row: u32, at: u32 }

fn place(first: u32, i: u32) -> Place {
  if (STRIPS % TOGETHER == 0) { return Place(first * (STRIPS / TOGETHER) + i / TOGETHER, i % TOGETHER); }
  let strip = first * STRIPS + i;
  return Place(strip / TOGETHER, strip % TOGETHER);
}

// The sums of a block. All four texels are loaded before the first is used, so that the loads overlap.
fn columns(p: Place, b: u32, lane: u32, x: Rows) -> Sums {
  let at = ((b * 4 + b / GROUP_BLOCKS + 1) * TOGETHER + p.at * 4) * LANES + lane;
  let w = array(texel(p.row, at), texel(p.row, at + LANES), texel(p.row, at + 2 * LANES), texel(p.row, at + 3 * LANES));
  var d: Sums;
  for (var c = 0u; c < 4; c++) { // unroll
    let y = column(w[c], x);
    for (var r = 0u; r < ROWS; r++) { // unroll
      d[r][c] = y[r];
    }
  }
  return d;
}

fn scales(p: Place, b: u32, lane: u32) -> vec4<f32> {
  let group = b / GROUP_BLOCKS * (1 + GROUP_BLOCKS * 4);
  return bitcast<vec4<f32>>(texel(p.row, (group * TOGETHER + p.at) * LANES + lane));
}

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = wid.x * ROWS;
  let first = wid.z * count.y + wid.y;
  var places: array<Place, STRIPS>;
  for (var i = 0u; i < STRIPS; i++) { // unroll
    places[i] = place(first, i);
  }
  var acc: array<Sums, STRIPS>;
  var square: array<f32, ROWS>;  // sums of squares, for the norm
  prepare(lane);
  for (var b = 0u; b < BLOCKS; b++) {
    var x: Rows;
    for (var r = 0u; r < ROWS; r++) { // unroll
      x[r] = load_x(row + r, b, lane);
    }
    for (var r = 0u; r < ROWS; r++) { // unroll
      square[r] += x[r].square;
    }
    for (var i = 0u; i < STRIPS; i++) { // unroll
      let d = columns(places[i], b, lane, x);
      let s = scales(places[i], b, lane);
      for (var r = 0u; r < ROWS; r++) { // unroll
        acc[i][r] += s * d[r];
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    let f = factor(row + r, square[r]);
    for (var i = 0u; i < STRIPS; i++) { // unroll
      store_row(row + r, first * STRIPS + i, lane, acc[i][r] * f);
    }
  }
}
