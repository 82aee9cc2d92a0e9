// What the kernels of wr.pick_rows share: the largest logit of a row, found by one workgroup, and where the id goes.
// include: slots
struct Params { rows: u32, count: u32, words: u32 }
struct Best { key: u32, index: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_x: array<f32>;
@group(0) @binding(3) var<storage, read_write> t_out: array<i32>;
@group(0) @binding(4) var<storage, read_write> t_ids: array<i32>;  // if IDS

const IDS: u32 = 1;  // plan: 1 if the tokens of the next turn are set

const NEVER: u32 = 8388607u;  // the key of -infinity
const NOTHING: i32 = 0x7fffffff;

var<workgroup> best: array<Best, WG>;

// Floats as integers in the same order: both zeros are equal, NaN is above infinity.
fn ordered(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0xffffffffu; }
  return select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
}

fn finite(key: u32) -> bool { return key > NEVER && key < 0xff800000u; }

// The largest of the logits from `first` on, the first of those that are equal.
fn best_of(first: u32, lane: u32) -> Best {
  var own = Best(0u, 0xffffffffu);
  for (var i = lane; i < params.count; i += WG) {
    let key = ordered(t_x[first + i]);
    if (key > own.key) { own = Best(key, i); }
  }
  best[lane] = own;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      let a = best[lane];
      let b = best[lane + half];
      if (b.key > a.key || (b.key == a.key && b.index < a.index)) { best[lane] = b; }
    }
    workgroupBarrier();
  }
  return workgroupUniformLoad(&best[0]);
}

fn id_of(largest: Best) -> i32 { return select(NOTHING, i32(largest.index), finite(largest.key)); }

// Stores the chosen id: for the host, in the place of this turn, and as the row's token of the next turn.
fn store(row: u32, id: i32) {
  t_out[slot(TURN) * params.rows + row] = id;
  t_ids[row] = id;  // if IDS
}
