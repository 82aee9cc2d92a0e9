// For q4_few.wgsl: x goes through workgroup memory, where it is made ready and summed once for the whole workgroup.
// few_words.wgsl or q8_few.wgsl has t_x and ready_word.
// include: few_float
const WORDS: u32 = ROWS * CHUNK * 4;  // of 8 k in a chunk
const COPIES: u32 = (WORDS + WG - 1) / WG;  // of them per invocation

// Nine times 16 bytes, an odd number, so that neighbouring blocks begin in different banks. Invocations may store different
// elements of an array at the same time, but not of a vector.
struct Block { words: Words, totals: array<f32, 4> }
var<workgroup> blocks: array<Block, ROWS * CHUNK>;

// With ROWS = 1 the call has one row, row 0.
fn begin_chunk(row: u32, chunk: u32, local: u32) {
  for (var n = 0u; n < COPIES; n++) { // unroll
    let i = n * WG + local;
    let word = chunk * CHUNK * 4 + i;  // if ROWS == 1
    // if ROWS > 1: let word = chunk * CHUNK * 4 + i % (CHUNK * 4);
    if ((WORDS % WG == 0 || i < WORDS) && (BLOCKS % CHUNK == 0 || word < BLOCKS * 4)) {
      let at = word;  // if ROWS == 1
      // if ROWS > 1: let at = min(row + i / (CHUNK * 4), params.rows - 1) * (K / 8) + word;
      let x = ready_word(at, word);
      blocks[i / 4].totals[i % 4] = total(x);
      blocks[i / 4].words[i % 4].a = x.a;
      blocks[i / 4].words[i % 4].b = x.b;
    }
  }
  workgroupBarrier();
}

fn begin_block(b: u32) {}

fn x_word(r: u32, slot: u32, i: u32) -> Word { return blocks[r * CHUNK + slot].words[i]; }

fn x_totals(r: u32, slot: u32) -> vec4<f32> {
  let totals = blocks[r * CHUNK + slot].totals;
  return vec4(totals[0], totals[1], totals[2], totals[3]);
}

fn end_chunk() { workgroupBarrier(); }
