// y = x w^T on GPUs for up to 8 rows, with 4-bit weights in strips of 4 * LANES columns.
// A workgroup computes ROWS rows of QUADS lanes of strips, four columns each. SPLITS invocations own the same columns, each
// with every SPLITS-th block of 32 k, and workgroup memory joins their sums. So even a narrow weight keeps a GPU busy.
// A few_x_* file has x: chunks of CHUNK blocks in workgroup memory, or blocks that an invocation reads for itself.
// A q4_out_* file adds Params, the bindings of the outputs and store_row.
// include: q4_texel
const ROWS: u32 = 1;  // plan: rows per workgroup
const QUADS: u32 = 8;  // plan: invocations side by side, a multiple of LANES
const SPLITS: u32 = 4;  // plan: invocations that own the same columns
const TURNS: u32 = 1;  // plan: blocks per invocation in a chunk
// include: norm_flag
const SIZES: u32 = 0;  // plan: 1 if x is in 8-bit steps
const ROUND: u32 = 0;  // plan: 1 if the kernel rounds its row to 8-bit steps; q8_few.wgsl has how
const CHUNK: u32 = TURNS * SPLITS;
const CHUNKS: u32 = (BLOCKS + CHUNK - 1) / CHUNK;
const WG: u32 = QUADS * SPLITS;
const JOINED: u32 = 2 - 1 / ROWS;  // rows whose sums are joined at a time: one, or two if there are more

// if SIZES: @group(0) @binding(4) var<storage, read> t_sizes: array<f32>;  // the step size of each row

struct Word { a: vec4<f32>, b: vec4<f32> }  // 8 k of x
alias Words = array<Word, 4>;  // a block
alias Sums = array<vec4<f32>, ROWS>;  // of an invocation's four columns

var<workgroup> parts: array<vec4<f32>, JOINED * WG>;
var<workgroup> squares: array<f32, WG>;  // if NORM and ROUND == 0
var<private> square: f32;  // sum of the squares of this invocation's part of x; if NORM

// A block of four columns, and their scales.
struct Texels { w: array<vec4<u32>, 4>, scale: vec4<f32> }

fn texels(strip: u32, b: u32, lane: u32) -> Texels {
  let at = (b * 4 + b / GROUP_BLOCKS + 1) * LANES + lane;
  let w = array(texel(strip, at), texel(strip, at + LANES), texel(strip, at + 2 * LANES), texel(strip, at + 3 * LANES));
  return Texels(w, bitcast<vec4<f32>>(texel(strip, at - (b % GROUP_BLOCKS * 4 + 1) * LANES)));
}

// A nibble becomes the upper bits of the mantissa of an f16 with the exponent of 16, and so 16 more than it was. Two of them,
// four k apart, are made at a time, and GPUs convert an f16 for free where a multiply-add reads it: one instruction per weight,
// with the shift. One nibble in four needs no shift if it may stay where it is, two bits lower: there it becomes 64 more.
// `w` is a word of each of four columns; a and b are the two values of x.
fn add_shifted(w: vec4<u32>, a: f32, b: f32, sum: vec4<f32>) -> vec4<f32> {
  return add_halves((w & vec4(0x03c003c0u)) | vec4(0x4c004c00u), a, b, sum);
}

fn add_in_place(w: vec4<u32>, a: f32, b: f32, sum: vec4<f32>) -> vec4<f32> {
  return add_halves((w & vec4(0x00f000f0u)) | vec4(0x54005400u), a, b, sum);
}

fn add_halves(w: vec4<u32>, a: f32, b: f32, sum: vec4<f32>) -> vec4<f32> {
  let w0 = unpack2x16float(w.x);
  let w1 = unpack2x16float(w.y);
  let w2 = unpack2x16float(w.z);
  let w3 = unpack2x16float(w.w);
  return fma(vec4(w0.y, w1.y, w2.y, w3.y), vec4(b), fma(vec4(w0.x, w1.x, w2.x, w3.x), vec4(a), sum));
}

// Nibble 8 stands for zero, so what was added to weights is 24 or 72 too much. This is a word's sum of x in units of 24.
fn total(x: Word) -> f32 {
  let s = x.a + x.b;
  return fma(3.0, s.y, s.x + s.z + s.w);
}

// The sums of a block, added to acc. `slot` is where the block is in a chunk.
fn add_block(t: Texels, slot: u32, acc: ptr<function, Sums>) {
  var d: Sums;
  for (var r = 0u; r < ROWS; r++) { // unroll
    let s = x_totals(r, slot);
    d[r] = vec4(-24.0 * (s.x + s.y + s.z + s.w));
  }
  for (var i = 0u; i < 4; i++) { // unroll
    let w = vec4(t.w[0][i], t.w[1][i], t.w[2][i], t.w[3][i]);
    for (var r = 0u; r < ROWS; r++) { // unroll
      let x = x_word(r, slot, i);
      d[r] = add_shifted(w << vec4(6u), x.a.x, x.b.x, d[r]);
      d[r] = add_in_place(w, x.a.y, x.b.y, d[r]);
      d[r] = add_shifted(w >> vec4(2u), x.a.z, x.b.z, d[r]);
      d[r] = add_shifted(w >> vec4(6u), x.a.w, x.b.w, d[r]);
    }
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    (*acc)[r] = fma(t.scale, d[r], (*acc)[r]);
  }
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
  let strip = quad / LANES;
  let lane = quad % LANES;
  var acc: Sums;
  // if ROUND: look_through(0, local, WG);
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
      var factor = 1.0;
      // if SIZES: factor = t_sizes[r];
      // if ROUND: factor = size;
      // if NORM and ROUND == 0: square = 0.0;
      // if NORM and ROUND == 0: for (var i = 0u; i < QUADS; i++) { square += squares[i]; }
      // if NORM and ROUND == 0: factor = inverseSqrt(square / f32(K) + params.eps);
      store_row(r, strip, lane, parts[j * WG + local % QUADS] * factor);
    }
    workgroupBarrier();  // if ROWS > 2
  }
}
