// y = x w^T for 4-bit weights packed in strips of 4 * LANES columns (ops/q4_layout.py describes the texels).
// A lane owns 4 columns of STRIPS strips and ROWS rows. With SPLITS > 1 (and one strip) as many lanes own the same columns,
// each with every SPLITS-th block of k, and workgroup memory joins them: GPUs need the lanes, software adapters are better
// without.
// x comes through a uniform window of WINDOW rows: on software adapters such a load is many times cheaper than one from
// storage, and elsewhere it is a broadcast. What surrounds the matmul (norm before; SwiGLU, bias and more after) is folded
// in because each step would cost a dispatch and a trip through memory of its own. Params, bindings of the outputs and
// store_row come from a q4_out_* file; the rows (X, prepare, load_x, column, factor) from a q4_x_* or q8_x_* file.
@group(0) @binding(2) var t_w: $TEXTURE;

const BLOCKS: u32 = K / 32;  // of 32 k: a texel a column
const GROUP_BLOCKS: u32 = G / 32;
const PITCH: u32 = (K / G + K / 8) / PARTS * LANES;

alias Rows = array<X, ROWS>;
alias Sums = array<vec4<f32>, ROWS>;  // of a lane's four columns

// A strip wider than the widest texture, which has its rows for itself, continues on the next one.
fn texel(row: u32, i: u32) -> vec4<u32> {
  if (PARTS == 1) { return $LOAD(i, row)$LEVEL; }
  return $LOAD(i % PITCH, row * PARTS + i / PITCH)$LEVEL;
}

// Where the texels of a strip are.
struct Place { row: u32, at: u32 }

fn place(first: u32, i: u32) -> Place {
  if (STRIPS % TOGETHER == 0) { return Place(first * (STRIPS / TOGETHER) + i / TOGETHER, i % TOGETHER); }
  let strip = first * STRIPS + i;
  return Place(strip / TOGETHER, strip % TOGETHER);
}

// The sums of a block. Four texels are fetched before any is used: a processor sees only so far ahead, and waits for a fetch
// that it reaches late.
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

struct Part { acc: Sums, square: f32 }
var<workgroup> parts: array<Part, SPLITS * LANES>;

// The sum over the lanes that share columns, left in the first of them.
fn joined(local: u32, part: Part) -> Part {
  parts[local] = part;
  workgroupBarrier();
  if (local < LANES) {
    for (var i = local + LANES; i < SPLITS * LANES; i += LANES) {
      for (var r = 0u; r < ROWS; r++) { // unroll
        parts[local].acc[r] += parts[i].acc[r];
      }
      parts[local].square += parts[i].square;
    }
  }
  return parts[local];
}

@compute @workgroup_size(LANES * SPLITS)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let lane = local % LANES;
  let split = local / LANES;
  let row = wid.x * ROWS;
  let first = wid.z * count.y + wid.y;
  var places: array<Place, STRIPS>;
  for (var i = 0u; i < STRIPS; i++) { // unroll
    places[i] = place(first, i);
  }
  var acc: array<Sums, STRIPS>;
  var square = 0.0;  // of the row, where there is one: many are normalised before
  prepare(lane);
  for (var b = split; b < BLOCKS; b += SPLITS) {
    var x: Rows;
    for (var r = 0u; r < ROWS; r++) { // unroll
      x[r] = load_x(row + r, b, lane);
    }
    square += x[0].square;
    for (var i = 0u; i < STRIPS; i++) { // unroll
      let d = columns(places[i], b, lane, x);
      let s = scales(places[i], b, lane);
      for (var r = 0u; r < ROWS; r++) { // unroll
        acc[i][r] += s * d[r];
      }
    }
  }
  if (SPLITS > 1) {
    let part = joined(local, Part(acc[0], square));
    if (split > 0) { return; }
    acc[0] = part.acc;
    square = part.square;
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    let f = factor(row + r, square);
    for (var i = 0u; i < STRIPS; i++) { // unroll
      store_row(row + r, first * STRIPS + i, lane, acc[i][r] * f);
    }
  }
}
