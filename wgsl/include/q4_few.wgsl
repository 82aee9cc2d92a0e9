// y = x w^T on GPUs for up to 8 rows, with 4-bit weights in strips of 4 * LANES columns.
// A workgroup computes ROWS rows of QUADS lanes of strips, four columns each. SPLITS invocations own the same columns, each
// with every SPLITS-th block of 32 k, and workgroup memory joins their sums. So even a narrow weight keeps a GPU busy.
// x goes through workgroup memory, a chunk of CHUNK blocks at a time. It is normalised, summed and put into the order of the
// nibbles there, once for the whole workgroup.
// With ROUND the row is rounded there too, after its norm.
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
const WORDS: u32 = ROWS * CHUNK * 4;  // of 8 k in a chunk
const COPIES: u32 = (WORDS + WG - 1) / WG;  // of them per invocation
const JOINED: u32 = 2 - 1 / ROWS;  // rows whose sums are joined at a time: one, or two if there are more

@group(0) @binding(3) var<storage, read> t_x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> t_norm: array<vec4<f32>>;  // if NORM
// if SIZES: @group(0) @binding(4) var<storage, read> t_sizes: array<f32>;  // the step size of each row

alias Sums = array<vec4<f32>, ROWS>;  // of an invocation's four columns

// A byte holds two nibbles, low + 16 high, for the even and the odd k. It is multiplied by odd / 16 without a mask, and its low
// nibble by even - odd / 16: together low * even + high * odd. So `words` has these two values for each pair of a word's 8 k.
// `sum` is -8 times the sum of each 8 k, because nibble 8 stands for zero. A block has nine vec4, an odd number, so that
// neighbouring blocks begin in different banks.
struct Word { a: vec4<f32>, b: vec4<f32> }
struct Block { words: array<Word, 4>, sum: vec4<f32> }
var<workgroup> blocks: array<Block, ROWS * CHUNK>;
var<workgroup> parts: array<vec4<f32>, JOINED * WG>;
var<workgroup> squares: array<f32, WG>;  // if NORM and ROUND == 0

// A block of four columns, and their scales.
struct Texels { w: array<vec4<u32>, 4>, scale: vec4<f32> }

fn texels(strip: u32, b: u32, lane: u32) -> Texels {
  let at = (b * 4 + b / GROUP_BLOCKS + 1) * LANES + lane;
  let w = array(texel(strip, at), texel(strip, at + LANES), texel(strip, at + 2 * LANES), texel(strip, at + 3 * LANES));
  return Texels(w, bitcast<vec4<f32>>(texel(strip, at - (b % GROUP_BLOCKS * 4 + 1) * LANES)));
}

fn pairs(x: vec4<f32>) -> vec4<f32> {
  let odd = x.yw * 0x1p-4;
  return vec4(x.x - odd.x, odd.x, x.z - odd.y, odd.y);
}

// Copies a chunk of x into workgroup memory, 8 k at a time. Returns the sum of squares of what it copied.
fn stage(row: u32, chunk: u32, local: u32) -> f32 {
  var square = 0.0;
  for (var n = 0u; n < COPIES; n++) { // unroll
    let i = n * WG + local;
    let r = i / (CHUNK * 4);
    let word = chunk * CHUNK * 4 + i % (CHUNK * 4);
    if ((WORDS % WG == 0 || i < WORDS) && (BLOCKS % CHUNK == 0 || word < BLOCKS * 4)) {
      let at = (row + r) * (K / 4) + word * 2;  // if ROWS == 1
      // if ROWS > 1: let at = min(row + r, params.rows - 1) * (K / 4) + word * 2;
      var a = t_x[at];
      var b = t_x[at + 1];
      square += dot(a, a) + dot(b, b);  // if NORM and ROUND == 0
      a *= t_norm[word * 2];  // if NORM and ROUND == 0
      b *= t_norm[word * 2 + 1];  // if NORM and ROUND == 0
      // if ROUND: a = steps(a, weight(word * 2));
      // if ROUND: b = steps(b, weight(word * 2 + 1));
      let ready = Word(pairs(a), pairs(b));
      blocks[i / 4].words[i % 4] = ready;
      blocks[i / 4].sum[i % 4] = dot(ready.a + ready.b, vec4(-8.0, -136.0, -8.0, -136.0));
    }
  }
  return square;
}

fn bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4(word & 0xffu, (word >> 8u) & 0xffu, (word >> 16u) & 0xffu, word >> 24u));
}

fn chain(w: vec4<f32>, x: vec4<f32>, sum: f32) -> f32 {
  return fma(w.w, x.w, fma(w.z, x.z, fma(w.y, x.y, fma(w.x, x.x, sum))));
}

// The sums of a block, added to acc. `slot` is where the block is in a chunk.
fn add_block(t: Texels, slot: u32, acc: ptr<function, Sums>) {
  var d: Sums;
  for (var r = 0u; r < ROWS; r++) { // unroll
    let s = blocks[r * CHUNK + slot].sum;
    d[r] = vec4(s.x + s.y + s.z + s.w);
  }
  for (var i = 0u; i < 4; i++) { // unroll
    for (var odd = 0u; odd < 2; odd++) { // unroll
      let mask = select(0x0f0f0f0fu, 0xffffffffu, odd == 1);
      let w0 = bytes(t.w[0][i] & mask);
      let w1 = bytes(t.w[1][i] & mask);
      let w2 = bytes(t.w[2][i] & mask);
      let w3 = bytes(t.w[3][i] & mask);
      for (var r = 0u; r < ROWS; r++) { // unroll
        let word = blocks[r * CHUNK + slot].words[i];
        let x = vec4(word.a[odd], word.a[odd + 2], word.b[odd], word.b[odd + 2]);
        d[r] = vec4(chain(w0, x, d[r].x), chain(w1, x, d[r].y), chain(w2, x, d[r].z), chain(w3, x, d[r].w));
      }
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
  var square = 0.0;
  // if ROUND: look_through(0, local, WG);
  for (var chunk = 0u; chunk < CHUNKS; chunk++) {
    var t = texels(strip, chunk * CHUNK + split, lane);  // before the barrier, so that the loads overlap with it
    square += stage(row, chunk, local);
    workgroupBarrier();
    for (var turn = 0u; turn < TURNS; turn++) { // unroll
      let b = chunk * CHUNK + turn * SPLITS + split;
      if (turn > 0) { t = texels(strip, b, lane); }
      if (BLOCKS % CHUNK == 0 || b < BLOCKS) { add_block(t, turn * SPLITS + split, &acc); }
    }
    workgroupBarrier();
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
