// For q4_few.wgsl with QUADS = 1 and one row, neither normalised nor rounded: no two invocations of a workgroup need the same x, so
// each reads its own blocks.
// include: few_float
@group(0) @binding(3) var<storage, read> t_x: array<Words>;

var<private> words: Words;

fn begin_chunk(row: u32, chunk: u32, local: u32) {}

fn begin_block(b: u32) { words = t_x[b]; }

fn x_word(r: u32, slot: u32, i: u32) -> Word { return words[i]; }

fn x_totals(r: u32, slot: u32) -> vec4<f32> {
  return vec4(total(words[0]), total(words[1]), total(words[2]), total(words[3]));
}

fn end_chunk() {}
