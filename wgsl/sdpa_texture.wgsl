// Causal attention over texture caches with online softmax. Eight lanes serve QROWS query rows and SHARE query heads of one
// key head; a workgroup has GROUPS of eight lanes, each with other heads. For scores a lane owns a position, so q stays in
// registers and a dot product needs no other lane. For values a lane owns four elements of D. Scores are broadcast in a
// subgroup of at least 8. BLOCKS blocks of eight positions share the loads of q. Rows past the end of the context are read but
// never enter a sum. Row 0 of a window is row `first_row` of the call.
// include: cache_texture
// include: row_place
const SHARE: u32 = 2;  // plan: query heads per workgroup
const QROWS: u32 = 1;  // plan: query rows per workgroup, one in a batch
const WINDOW: u32 = 4;  // plan: query rows in the window
const BLOCKS: u32 = 2;  // plan: blocks of eight positions per turn
const GROUPS: u32 = 1;  // plan: groups of eight lanes, 1 or 2

struct Params { rows: u32, first_row: u32, pos_slot: u32, scale: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<uniform> t_q: array<vec4<f32>, WINDOW * HEADS * D / 4>;
// Texel ((head * D/4 + d/4) * 8 + pos % 8, pos / 8) of the keys, ((head * 8 + pos % 8) * D/4 + d/4, pos / 8) of the values.
@group(0) @binding(3) var t_kt: texture_storage_2d_array<rgba32float, read>;  // plan CACHE is rgba32float
@group(0) @binding(4) var t_vt: texture_storage_2d_array<rgba32float, read>;  // plan CACHE is rgba32float
@group(0) @binding(5) var<storage, read_write> t_out: array<vec4<f32>>;

// include: sum8_subgroup
const PLACES: u32 = (D4 + 7) / 8;
const QUERIES: u32 = SHARE * QROWS;
const LOWEST: f32 = -1e30;
const MASKED: f32 = -3e38;  // far below LOWEST, so its weight is 0 even if no score is above LOWEST

// Elements 4 i to 4 i + 3 of a query.
fn query(row: u32, head: u32, i: u32) -> vec4<f32> {
  return t_q[min((row * HEADS + head) * D4 + i, WINDOW * HEADS * D4 - 1)];
}

fn store(row: u32, head: u32, i: u32, y: vec4<f32>) {
  if (row >= params.rows) { return; }
  t_out[((params.first_row + row) * HEADS + head) * D4 + i] = y;
}

fn max8(v: f32) -> f32 {
  var m = max(v, subgroupShuffleXor(v, 1u));
  m = max(m, subgroupShuffleXor(m, 2u));
  return max(m, subgroupShuffleXor(m, 4u));
}

@compute @workgroup_size(8 * GROUPS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let lane = local % 8;
  // Whether a lane is in the second group of its subgroup; where subgroups have eight lanes, none is.
  // if GROUPS == 2: let upper = subgroupBroadcastFirst(local / 8) != local / 8;
  let row = wid.y * QROWS;
  let own = (wid.x * GROUPS + local / 8) * SHARE;
  let head = min(own, HEADS - SHARE);  // the last group may have no heads of its own
  let kv = head / (HEADS / KV_HEADS);
  let place = place_of(params.first_row + row);
  let seen = place.position + 1;
  var q: array<array<vec4<f32>, PLACES * 8>, QUERIES>;
  var top: array<f32, QUERIES>;
  var total: array<f32, QUERIES>;
  var acc: array<array<vec4<f32>, PLACES>, QUERIES>;
  for (var r = 0u; r < QUERIES; r++) { // unroll
    top[r] = LOWEST;
    for (var s = 0u; s < PLACES; s++) { // unroll
      let mine = query(row + r / SHARE, head + r % SHARE, s * 8 + lane) * params.scale;
      for (var i = 0u; i < 8; i++) { // unroll
        q[r][s * 8 + i] = subgroupBroadcast(mine, i);  // if GROUPS == 1
        // if GROUPS == 2: q[r][s * 8 + i] = select(subgroupBroadcast(mine, i), subgroupBroadcast(mine, i + 8), upper);
      }
    }
  }
  for (var at = 0u; at < seen + QROWS - 1; at += 8 * BLOCKS) {
    var score = array<array<f32, QUERIES>, BLOCKS>();
    var block: array<u32, BLOCKS>;
    for (var b = 0u; b < BLOCKS; b++) { // unroll
      block[b] = block_of(place, min(at + b * 8, seen + QROWS - 2));
    }
    for (var i = 0u; i < D4; i++) { // unroll
      for (var b = 0u; b < BLOCKS; b++) { // unroll
        let k = textureLoad(t_kt, vec2((kv * D4 + i) * 8 + lane, block[b] % LAYER_ROWS), block[b] / LAYER_ROWS);
        for (var r = 0u; r < QUERIES; r++) { // unroll
          score[b][r] += dot(q[r][i], k);
        }
      }
    }
    // One block after the other, so that the sums of a query do not depend on BLOCKS and QROWS.
    for (var b = 0u; b < BLOCKS; b++) { // unroll
      for (var r = 0u; r < QUERIES; r++) { // unroll
        score[b][r] = select(MASKED, score[b][r], at + b * 8 + lane < seen + r / SHARE);
        let high = max(top[r], max8(max(score[b][r], LOWEST)));
        let shrink = exp(top[r] - high);
        top[r] = high;
        score[b][r] = exp(score[b][r] - high);
        total[r] = total[r] * shrink + score[b][r];
        for (var s = 0u; s < PLACES; s++) { // unroll
          acc[r][s] *= shrink;
        }
      }
      for (var j = 0u; j < 8; j++) { // unroll
        var weight: array<f32, QUERIES>;
        for (var r = 0u; r < QUERIES; r++) { // unroll
          weight[r] = subgroupBroadcast(score[b][r], j);  // if GROUPS == 1
          // if GROUPS == 2: weight[r] = select(subgroupBroadcast(score[b][r], j), subgroupBroadcast(score[b][r], j + 8), upper);
        }
        for (var s = 0u; s < PLACES; s++) { // unroll
          let v = textureLoad(t_vt, vec2((kv * 8 + j) * D4 + s * 8 + lane, block[b] % LAYER_ROWS), block[b] / LAYER_ROWS);
          for (var r = 0u; r < QUERIES; r++) { // unroll
            // A weight of 0 would not do: 0 * NaN is NaN.
            let live = at + b * 8 + j < seen + r / SHARE;
            acc[r][s] += weight[r] * select(vec4<f32>(), v, live);
          }
        }
      }
    }
  }
  for (var r = 0u; r < QUERIES; r++) { // unroll
    let sum = sum8(total[r]);
    for (var s = 0u; s < PLACES; s++) { // unroll
      if (s * 8 + lane < D4 && own == head) { store(row + r / SHARE, head + r % SHARE, s * 8 + lane, acc[r][s] / sum); }
    }
  }
}
