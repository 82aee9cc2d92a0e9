// 8-bit x as bytes for q4_few.wgsl, on GPUs that multiply four of them at a time. x goes through workgroup memory. The sum of a block
// is an exact integer; its zero point and its scale are applied in f32. A bytes_* file has set_zeros, ready_word and step_size.
// include: q4_few
// include: q8_bytes
const WORDS: u32 = ROWS * CHUNK * 4;  // of 8 k in a chunk
const COPIES: u32 = (WORDS + WG - 1) / WG;  // of them per invocation

// Three vec4, an odd number, so that neighbouring blocks begin in different banks.
struct Block { words: array<vec2<u32>, 4>, pad: vec4<u32> }
var<workgroup> blocks: array<Block, ROWS * CHUNK>;
var<private> zeros: array<f32, ROWS>;

fn prepare(row: u32, local: u32) { set_zeros(row, local); }

fn begin_chunk(row: u32, chunk: u32, local: u32) {
  for (var n = 0u; n < COPIES; n++) { // unroll
    let i = n * WG + local;
    let word = chunk * CHUNK * 4 + i % (CHUNK * 4);
    if ((WORDS % WG == 0 || i < WORDS) && (BLOCKS % CHUNK == 0 || word < BLOCKS * 4)) {
      blocks[i / 4].words[i % 4] = ready_word(row + i / (CHUNK * 4), word);
    }
  }
  workgroupBarrier();
}

fn begin_block(b: u32) {}

// The sums of a block, added to acc. `slot` is where the block is in a chunk.
fn add_block(t: Texels, slot: u32, acc: ptr<function, Sums>) {
  var low: array<vec4<u32>, 4>;
  var high: array<vec4<u32>, 4>;
  var sums: vec4<i32>;
  for (var c = 0u; c < 4; c++) { // unroll
    low[c] = decoded(t.w[c].xy);
    high[c] = decoded(t.w[c].zw);
    sums[c] = add_dot(high[c], vec4(0x01010101u), add_dot(low[c], vec4(0x01010101u), 0));
  }
  for (var r = 0u; r < ROWS; r++) { // unroll
    let words = blocks[r * CHUNK + slot].words;
    let x0 = vec4(words[0], words[1]);
    let x1 = vec4(words[2], words[3]);
    let d = vec4(
      add_dot(high[0], x1, add_dot(low[0], x0, 0)),
      add_dot(high[1], x1, add_dot(low[1], x0, 0)),
      add_dot(high[2], x1, add_dot(low[2], x0, 0)),
      add_dot(high[3], x1, add_dot(low[3], x0, 0)));
    (*acc)[r] = fma(t.scale, fma(vec4(-zeros[r]), vec4<f32>(sums), vec4<f32>(d)), (*acc)[r]);
  }
}

fn end_chunk() { workgroupBarrier(); }

fn factor_of(r: u32) -> f32 { return step_size(r) / 16.0; }
