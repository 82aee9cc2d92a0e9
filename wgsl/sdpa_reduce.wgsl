// Joins the splits of sdpa_rows.wgsl: one cell of the output per lane, over the splits that had a tile at the live position.
// A context of at most SPAN positions was not split.
// include: slots
struct Params { cells: u32, splits: u32, pos_slot: u32 }

const HEADS: u32 = 4;  // plan: query heads
const CELLS: u32 = 16;  // plan: cells per head
const TILE: u32 = 32;  // plan: positions per tile of a workgroup
const SPAN: u32 = 128;  // plan: positions that one workgroup reads alone
alias V = vec4<f32>;  // plan: a cell

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_part: array<V>;
@group(0) @binding(3) var<storage, read> t_stat: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> t_out: array<V>;

// include: lane_grid
fn run(i: u32) {
  let rows = params.cells / (CELLS * HEADS);
  if (i >= params.cells || slot(params.pos_slot) + rows <= SPAN) { return; }
  let query = i / CELLS;
  let seen = slot(params.pos_slot) + query / HEADS + 1;
  let first = query * params.splits;
  let live = min(params.splits, (seen + TILE - 1) / TILE);
  var top = t_stat[first].x;
  for (var s = 1u; s < live; s++) { top = max(top, t_stat[first + s].x); }
  var sum = 0.0;
  var acc = V();
  for (var s = 0u; s < live; s++) {
    let stat = t_stat[first + s];
    let weight = exp(stat.x - top);
    sum += stat.y * weight;
    acc += t_part[(first + s) * CELLS + i % CELLS] * weight;
  }
  t_out[i] = acc / sum;
}
