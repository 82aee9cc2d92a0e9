// y = x w^T for 4-bit weights packed in strips of 4 * LANES columns (ops/q4.py describes the texels).
// A lane owns 4 columns of STRIPS strips and ROWS rows. With SPLITS > 1 as many lanes own the same columns, each with every
// SPLITS-th block of k, and workgroup memory joins them: GPUs need the lanes, software adapters are better without.
// x comes through a uniform window of WINDOW rows: on software adapters such a load is many times cheaper than one from
// storage, and elsewhere it is a broadcast. What surrounds the matmul (norm before; SwiGLU, bias and more after) is folded
// in because each step would cost a dispatch and a trip through memory of its own. Params, bindings of the outputs and
// store_row come from a q4_out_* file; the rows (X, prepare, load_x, column, factor) from a q4_x_* or q8_x_* file.
@group(0) @binding(2) var t_w: $TEXTURE;

const BLOCKS: u32 = K / 32;  // of 32 k: a texel a column
const GROUP_BLOCKS: u32 = G / 32;
const PITCH: u32 = (K / G + K / 8) / PARTS * LANES;

alias Rows = array<X, ROWS>;
alias Strip = mat4x4<f32>;  // columns of 4 rows

// A strip wider than the widest texture continues on the next row.
fn texel(strip: u32, i: u32) -> vec4<u32> {
  if (PARTS == 1) { return $LOAD(i, strip)$LEVEL; }
  return $LOAD(i % PITCH, strip * PARTS + i / PITCH)$LEVEL;
}

fn columns(strip: u32, b: u32, lane: u32, x: Rows) -> Strip {
  let at = (b * 4 + b / GROUP_BLOCKS + 1) * LANES + lane;
  return Strip(column(texel(strip, at), x), column(texel(strip, at + LANES), x),
    column(texel(strip, at + 2 * LANES), x), column(texel(strip, at + 3 * LANES), x));
}

fn scaled(strip: u32, b: u32, lane: u32, d: Strip) -> Strip {
  let s = bitcast<vec4<f32>>(texel(strip, b / GROUP_BLOCKS * (1 + GROUP_BLOCKS * 4) * LANES + lane));
  return Strip(s.x * d[0], s.y * d[1], s.z * d[2], s.w * d[3]);
}

fn load_rows(row: u32, b: u32, lane: u32) -> Rows {
  var x = Rows();
  for (var r = 0u; r < ROWS; r++) { // unroll
    x[r] = load_x(row + r, b, lane);
  }
  return x;
}

fn squares(x: Rows) -> vec4<f32> {
  var s = vec4<f32>();
  for (var r = 0u; r < ROWS; r++) { // unroll
    s[r] = x[r].square;
  }
  return s;
}

fn store(row: u32, strip: u32, lane: u32, acc: Strip) {
  let v = transpose(acc);
  for (var r = 0u; r < ROWS; r++) { // unroll
    store_row(row + r, strip, lane, v[r]);
  }
}

// The sum over the lanes that share columns, left in the first of them.
fn joined(local: u32, acc: Strip, square: vec4<f32>) -> Strip {
  parts[local] = Part(acc, square);
  workgroupBarrier();
  if (local < LANES) {
    for (var i = local + LANES; i < SPLITS * LANES; i += LANES) {
      parts[local].acc += parts[i].acc;
      parts[local].square += parts[i].square;
    }
  }
  return parts[local].acc;
}

struct Part { acc: Strip, square: vec4<f32> }
var<workgroup> parts: array<Part, SPLITS * LANES>;

@compute @workgroup_size(LANES * SPLITS)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let lane = local % LANES;
  let split = local / LANES;
  let row = wid.z * ROWS;
  let strip = (wid.y * count.x + wid.x) * select(STRIPS, 1, SWIGLU == 1);
  let strip2 = strip + select(1, up_strip(), SWIGLU == 1);
  var acc: Strip;
  var acc2: Strip;
  var square = vec4<f32>();
  prepare(lane);
  for (var b = split * UNROLL; b < BLOCKS; b += SPLITS * UNROLL) {
    let x = load_rows(row, b, lane);
    square += squares(x);
    var d = columns(strip, b, lane, x);
    var d2: Strip;
    if (STRIPS > 1) { d2 = columns(strip2, b, lane, x); }
    if (UNROLL > 1) {
      let x2 = load_rows(row, b + 1, lane);
      square += squares(x2);
      d += columns(strip, b + 1, lane, x2);
      if (STRIPS > 1) { d2 += columns(strip2, b + 1, lane, x2); }
    }
    acc += scaled(strip, b, lane, d);
    if (STRIPS > 1) { acc2 += scaled(strip2, b, lane, d2); }
  }
  if (SPLITS > 1) {
    acc = joined(local, acc, square);
    square = parts[lane].square;
    if (STRIPS > 1) {
      workgroupBarrier();
      acc2 = joined(local, acc2, square);
    }
    if (split > 0) { return; }
  }
  let r = factor(row, square);
  acc = Strip(acc[0] * r, acc[1] * r, acc[2] * r, acc[3] * r);
  acc2 = Strip(acc2[0] * r, acc2[1] * r, acc2[2] * r, acc2[3] * r);
  if (SWIGLU == 1) {
    for (var c = 0; c < 4; c++) { acc[c] = acc[c] / (1.0 + exp(-acc[c])) * acc2[c]; }
  }
  store(row, strip, lane, acc);
  if (STRIPS > 1 && SWIGLU == 0) { store(row, strip2, lane, acc2); }
}
