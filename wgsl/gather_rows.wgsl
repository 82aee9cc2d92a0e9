// Rows of `width` cells from tables of `rows` rows, `picks` per table, one cell per lane: an element, or four of them. An index
// outside the table reads its last row, never other memory. A table that is too large for one binding comes in parts of `held`
// rows from `first` on; each part serves the picks that fall into it.
const HALF: u32 = 0;  // plan: 1 if the table is f16, two per word
const WIDE: u32 = 1;  // plan: elements per cell
alias CELL = u32;  // if WIDE == 1
// if WIDE == 4: alias CELL = vec4<u32>;

struct Params { count: u32, width: u32, rows: u32, picks: u32, first: u32, held: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_table: array<CELL>;
@group(0) @binding(2) var<storage, read> t_index: array<i32>;
@group(0) @binding(3) var<storage, read_write> t_out: array<CELL>;

// include: lane_grid
fn run(i: u32) {
  if (i >= params.count) { return; }
  let pick = i / params.width;
  var row = t_index[pick % params.picks];
  if (row < 0) { row += i32(params.rows); }
  let from_row = pick / params.picks * params.rows + min(u32(row), params.rows - 1u) - params.first;
  if (from_row >= params.held) { return; }
  let at = from_row * params.width + i % params.width;
  t_out[i] = t_table[at];  // if HALF == 0
  // if HALF: t_out[i] = bitcast<u32>(unpack2x16float(t_table[at >> 1u])[at & 1u]);
}
