// Rotates queries into scratch, rotates keys into their cache, copies values into theirs: a lane a pair.
// Pairs are (2i, 2i+1), or with HALVES (i, i + width/2); the tables' rows start at the position when ABSOLUTE.
// include: slots
struct Params {
  pairs_q: u32, pairs_k: u32, heads_q: u32, heads_k: u32, half_dim: u32, width: u32, pos_slot: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> t_xq: array<f32>;
@group(0) @binding(3) var<storage, read> t_xk: array<f32>;
@group(0) @binding(4) var<storage, read> t_v: array<f32>;
@group(0) @binding(5) var<storage, read> t_cos: array<f32>;
@group(0) @binding(6) var<storage, read> t_sin: array<f32>;
@group(0) @binding(7) var<storage, read_write> t_q: array<f32>;
@group(0) @binding(8) var<storage, read_write> t_kc: array<f32>;
@group(0) @binding(9) var<storage, read_write> t_vc: array<f32>;

struct Pair { a: u32, b: u32, cos_a: f32, sin_a: f32, cos_b: f32, sin_b: f32 }

// The two elements that pair i holds, and what turns them.
fn pair(i: u32, heads: u32) -> Pair {
  let p = i % params.half_dim;
  let head = i / params.half_dim;
  var row = head / heads;
  if (ABSOLUTE == 1u) { row += slot(params.pos_slot); }
  let base = head * params.half_dim * 2u;
  let at = row * params.width + p;
  if (HALVES == 0u) {
    let c = t_cos[at];
    let s = t_sin[at];
    return Pair(base + 2u * p, base + 2u * p + 1u, c, s, c, s);
  }
  let half = params.width / 2u;
  if (p < half) { return Pair(base + p, base + p + half, t_cos[at], t_sin[at], t_cos[at + half], t_sin[at + half]); }
  let rest = base + 2u * p;  // past the tables' width: as it is
  return Pair(rest, rest + 1u, 1.0, 0.0, 1.0, 0.0);
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  var i = (wid.y * count.x + wid.x) * WG + lane;
  if (i < params.pairs_q) {
    let p = pair(i, params.heads_q);
    let a = t_xq[p.a];
    let b = t_xq[p.b];
    t_q[p.a] = a * p.cos_a - b * p.sin_a;
    t_q[p.b] = b * p.cos_b + a * p.sin_b;
    return;
  }
  i -= params.pairs_q;
  let base = slot(params.pos_slot) * params.heads_k * params.half_dim * 2u;
  if (i < params.pairs_k) {
    let p = pair(i, params.heads_k);
    let a = t_xk[p.a];
    let b = t_xk[p.b];
    t_kc[base + p.a] = a * p.cos_a - b * p.sin_a;
    t_kc[base + p.b] = b * p.cos_b + a * p.sin_b;
    return;
  }
  i -= params.pairs_k;
  if (i < params.pairs_k) {
    t_vc[base + 2u * i] = t_v[2u * i];
    t_vc[base + 2u * i + 1u] = t_v[2u * i + 1u];
  }
}
