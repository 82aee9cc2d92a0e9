// y = x w^T on GPUs for up to 8 rows, with 4-bit weights in strips of 4 * LANES columns.
// A workgroup computes ROWS rows of QUADS lanes of strips, four columns each. SPLITS invocations own the same columns, each
// with every SPLITS-th block of 32 k, and workgroup memory joins their sums. So even a narrow weight keeps a GPU busy.
// few_float.wgsl or few_bytes.wgsl multiplies. A few_x_* file has x: chunks of CHUNK blocks in workgroup memory, or blocks that an
// invocation reads for itself.
// A q4_out_* file adds Params, the bindings of the outputs and store_row.
// include: q4_texel
const ROWS: u32 = 1;  // plan: rows per workgroup
const QUADS: u32 = 8;  // plan: invocations side by side, a multiple of LANES
const SPLITS: u32 = 4;  // plan: invocations that own the same columns
const TURNS: u32 = 1;  // plan: blocks per invocation in a chunk
// include: norm_flag
const ROUND: u32 = 0;  // plan: 1 if the kernel rounds its row to 8 bits; q8_row.wgsl has how
const CHUNK: u32 = TURNS * SPLITS;
const CHUNKS: u32 = (BLOCKS + CHUNK - 1) / CHUNK;
const WG: u32 = QUADS * SPLITS;
const JOINED: u32 = 2 - 1 / ROWS;  // rows whose sums are joined at a time: one, or two if there are more

alias Sums = array<vec4<f32>, ROWS>;  // of an invocation's four columns

var<workgroup> parts: array<vec4<f32>, JOINED * WG>;
var<workgroup> squares: array<f32, WG>;  // if NORM and ROUND == 0
var<private> square: f32;  // sum of the squares of this invocation's part of x; if NORM

// A block of four columns, and their scales.
struct Texels { w: array<vec4<u32>, 4>, scale: vec4<f32> }

// A block and its scales are in the same texture row, because parts of a strip are whole groups.
fn texels(strip: u32, b: u32, lane: u32) -> Texels {
  var row = strip;
  var at = (b * 4 + b / GROUP_BLOCKS + 1) * LANES + lane;
  if (PARTS > 1) {
    let part = b / (BLOCKS / PARTS);
    row = strip * PARTS + part;
    at -= part * PITCH;
  }
  let w = array(
    texel_at(vec2(at, row)),
    texel_at(vec2(at + LANES, row)),
    texel_at(vec2(at + 2 * LANES, row)),
    texel_at(vec2(at + 3 * LANES, row)));
  return Texels(w, bitcast<vec4<f32>>(texel_at(vec2(at - (b % GROUP_BLOCKS * 4 + 1) * LANES, row))));
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let split = local / QUADS;
  let row = wid.x * ROWS;
  let quad = (wid.z * count.y + wid.y) * QUADS + local % QUADS;
  var strip = wid.z * count.y + wid.y;
  var lane = local % QUADS;
  if (QUADS > LANES) {
    strip = quad / LANES;
    lane = quad % LANES;
  }
  var acc: Sums;
  prepare(row, local);
  for (var chunk = 0u; chunk < CHUNKS; chunk++) {
    var t = texels(strip, chunk * CHUNK + split, lane);  // before the barrier, so that the loads overlap with it
    begin_chunk(row, chunk, local);
    for (var turn = 0u; turn < TURNS; turn++) { // unroll
      let b = chunk * CHUNK + turn * SPLITS + split;
      if (turn > 0) { t = texels(strip, b, lane); }
      if (BLOCKS % CHUNK == 0 || b < BLOCKS) {
        begin_block(b);
        add_block(t, turn * SPLITS + split, &acc);
      }
    }
    end_chunk();
  }
  squares[local] = square;  // if NORM and ROUND == 0
  for (var pair = 0u; pair < ROWS / JOINED; pair++) { // unroll
    for (var r = 0u; r < JOINED; r++) { // unroll
      parts[r * WG + local] = acc[pair * JOINED + r];
    }
    workgroupBarrier();
    for (var n = SPLITS; n > 1; n = (n + 1) / 2) {
      let half = (n + 1) / 2;
      if (split + half < n) {
        for (var r = 0u; r < JOINED; r++) { // unroll
          parts[r * WG + local] += parts[r * WG + local + half * QUADS];
        }
        squares[local] += squares[local + half * QUADS];  // if NORM and ROUND == 0
      }
      workgroupBarrier();
    }
    for (var j = split; j < JOINED; j += SPLITS) {
      let r = row + pair * JOINED + j;
      var factor = factor_of(r);
      // if NORM and ROUND == 0: square = 0.0;
      // if NORM and ROUND == 0: for (var i = 0u; i < QUADS; i++) { square += squares[i]; }
      // if NORM and ROUND == 0: factor = inverseSqrt(square / f32(K) + params.eps);
      store_row(r, strip, lane, parts[j * WG + local % QUADS] * factor);
    }
    workgroupBarrier();  // if ROWS > 2
  }
}
