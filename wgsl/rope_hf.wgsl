// Rotates element i with element i + half_rot. The tables' rows start at the live position; dims past the tables' width
// pass through. A lane writes two elements of a head. From one position to the next are `inner` heads: all of them, or 1
// if heads come first. `batch_rows` is 0 if all batches share the tables.
// include: slots
struct Params {
  pairs_q: u32, pairs_k: u32, seq_q: u32, seq_k: u32, heads_q: u32, heads_k: u32, half_dim: u32,
  inner_q: u32, inner_k: u32, batch_rows: u32, half_rot: u32, pos_slot: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_xq: array<f32>;
@group(0) @binding(3) var<storage, read> t_xk: array<f32>;
@group(0) @binding(4) var<storage, read> t_cos: array<f32>;
@group(0) @binding(5) var<storage, read> t_sin: array<f32>;
@group(0) @binding(6) var<storage, read_write> t_oq: array<f32>;
@group(0) @binding(7) var<storage, read_write> t_ok: array<f32>;

// The two places in a head that lane p serves, and its row of the tables.
fn places(i: u32, heads: u32, seq: u32, inner: u32) -> vec4<u32> {
  let p = i % params.half_dim;
  let head = i / params.half_dim;
  let row = (head / inner) % seq + slot(params.pos_slot) + head / (heads * seq) * params.batch_rows;
  let base = head * params.half_dim * 2u;
  if (p < params.half_rot) { return vec4<u32>(base + p, base + p + params.half_rot, row * params.half_rot * 2u + p, 1u); }
  let rest = base + 2u * params.half_rot + 2u * (p - params.half_rot);
  return vec4<u32>(rest, rest + 1u, 0u, 0u);
}

fn turn(x: f32, y: f32, at: vec4<u32>) -> vec2<f32> {
  if (at.w == 0u) { return vec2<f32>(x, y); }
  let up = at.z + params.half_rot;
  return vec2<f32>(x * t_cos[at.z] - y * t_sin[at.z], y * t_cos[up] + x * t_sin[up]);
}

// include: lane_grid
fn run(i: u32) {
  if (i < params.pairs_q) {
    let at = places(i, params.heads_q, params.seq_q, params.inner_q);
    let r = turn(t_xq[at.x], t_xq[at.y], at);
    t_oq[at.x] = r.x;
    t_oq[at.y] = r.y;
  } else if (i - params.pairs_q < params.pairs_k) {
    let at = places(i - params.pairs_q, params.heads_k, params.seq_k, params.inner_k);
    let r = turn(t_xk[at.x], t_xk[at.y], at);
    t_ok[at.x] = r.x;
    t_ok[at.y] = r.y;
  }
}
