// Rotates queries into scratch and keys into their cache, and copies values into theirs: two neighbours per lane.
// Rotary pairs are (2i, 2i+1), or with HALVES (i, i + width/2), which are neighbours in xq and xk if REORDERED. The tables'
// rows start at the live position if ABSOLUTE.
// A cell of a cache holds two neighbours, as f32 or packed as f16.
// include: slots
const ABSOLUTE: u32 = 1;  // plan
const HALVES: u32 = 0;  // plan
const REORDERED: u32 = 0;  // plan
alias CELL = vec2<f32>;  // plan

struct Params {
  pairs_q: u32, pairs_k: u32, heads_q: u32, heads_k: u32, half_dim: u32, width: u32, pos_slot: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_xq: array<f32>;
@group(0) @binding(3) var<storage, read> t_xk: array<f32>;
@group(0) @binding(4) var<storage, read> t_v: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> t_cos: array<f32>;
@group(0) @binding(6) var<storage, read> t_sin: array<f32>;
@group(0) @binding(7) var<storage, read_write> t_q: array<vec2<f32>>;
@group(0) @binding(8) var<storage, read_write> t_kc: array<CELL>;
@group(0) @binding(9) var<storage, read_write> t_vc: array<CELL>;

// How an element is rotated: the index of the other element of its pair, and the factors of both.
struct Turn { other: u32, own: f32, from_other: f32 }

fn turn(e: u32, heads: u32) -> Turn {
  let d = e % (params.half_dim * 2u);
  var row = e / (params.half_dim * 2u) / heads;
  if (ABSOLUTE == 1u) { row += slot(params.pos_slot); }
  let at = row * params.width;
  if (HALVES == 0u) {
    let sine = t_sin[at + d / 2u];
    return Turn(e ^ 1u, t_cos[at + d / 2u], select(sine, -sine, d % 2u == 0u));
  }
  let half = params.width / 2u;
  if (d >= params.width) { return Turn(e, 1.0, 0.0); }  // past the tables' width: unchanged
  if (REORDERED == 1u) {
    let column = at + d / 2u + d % 2u * half;
    return Turn(e ^ 1u, t_cos[column], select(t_sin[column], -t_sin[column], d % 2u == 0u));
  }
  let sine = t_sin[at + d];
  return Turn(select(e - half, e + half, d < half), t_cos[at + d], select(sine, -sine, d < half));
}

fn turned_q(e: u32) -> f32 {
  let t = turn(e, params.heads_q);
  return t_xq[e] * t.own + t_xq[t.other] * t.from_other;
}

fn turned_k(e: u32) -> f32 {
  let t = turn(e, params.heads_k);
  return t_xk[e] * t.own + t_xk[t.other] * t.from_other;
}

fn cell(v: vec2<f32>) -> CELL {
  return v;  // plan PACK is v
}

// include: lane_grid
fn run(lane: u32) {
  var i = lane;
  if (i < params.pairs_q) {
    t_q[i] = vec2(turned_q(2u * i), turned_q(2u * i + 1u));
    return;
  }
  i -= params.pairs_q;
  let base = slot(params.pos_slot) * params.heads_k * params.half_dim;
  if (i < params.pairs_k) {
    t_kc[base + i] = cell(vec2(turned_k(2u * i), turned_k(2u * i + 1u)));
    return;
  }
  i -= params.pairs_k;
  if (i < params.pairs_k) { t_vc[base + i] = cell(t_v[i]); }
}
