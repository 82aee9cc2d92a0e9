// Rotates pairs (2i, 2i+1) of queries and keys in one dispatch: one pair per lane.
struct Params {
  pairs_q: u32, pairs_k: u32, seq_q: u32, seq_k: u32, heads_q: u32, heads_k: u32, half_dim: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_xq: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> t_xk: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> t_cos: array<f32>;
@group(0) @binding(4) var<storage, read> t_sin: array<f32>;
@group(0) @binding(5) var<storage, read_write> t_oq: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> t_ok: array<vec2<f32>>;

fn turn(x: vec2<f32>, i: u32, heads: u32, seq: u32) -> vec2<f32> {
  let row = (i / (params.half_dim * heads)) % seq;
  let at = row * params.half_dim + i % params.half_dim;
  let c = t_cos[at];
  let s = t_sin[at];
  return vec2<f32>(x.x * c - x.y * s, x.x * s + x.y * c);
}

// include: lane_grid
fn run(i: u32) {
  if (i < params.pairs_q) {
    t_oq[i] = turn(t_xq[i], i, params.heads_q, params.seq_q);
  } else if (i - params.pairs_q < params.pairs_k) {
    let k = i - params.pairs_q;
    t_ok[k] = turn(t_xk[k], k, params.heads_k, params.seq_k);
  }
}
