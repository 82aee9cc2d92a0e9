// Causal attention over texture caches with online softmax. A workgroup of eight lanes serves QROWS query rows and SHARE
// query heads of one key head. For scores a lane owns a position, so q stays in registers and a dot product needs no other
// lane. For values a lane owns four elements of D. Scores are broadcast in a subgroup of at least 8. BLOCKS blocks of eight
// positions share the loads of q. Rows past the end of the context are read but never enter a sum.
//
// A kernel that includes this has the functions
//   seen_by(row)               how many positions a query row sees
//   block_at(row, at, seen)    which block of eight positions of the caches has position `at`
//   query(row, head, i, seen)  elements 4 i to 4 i + 3 of a query
//   store(row, head, i, y)     store these elements of the result
// include: sum8_subgroup
const PLACES: u32 = (D4 + 7) / 8;
const QUERIES: u32 = SHARE * QROWS;
const LOWEST: f32 = -1e30;
const MASKED: f32 = -3e38;  // far below LOWEST, so its weight is 0 even if no score is above LOWEST

fn max8(v: f32) -> f32 {
  var m = max(v, subgroupShuffleXor(v, 1u));
  m = max(m, subgroupShuffleXor(m, 2u));
  return max(m, subgroupShuffleXor(m, 4u));
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wid.y * QROWS;
  let head = wid.x * SHARE;
  let kv = head / (HEADS / KV_HEADS);
  let seen = seen_by(row);
  var q: array<array<vec4<f32>, PLACES * 8>, QUERIES>;
  var top: array<f32, QUERIES>;
  var total: array<f32, QUERIES>;
  var acc: array<array<vec4<f32>, PLACES>, QUERIES>;
  for (var r = 0u; r < QUERIES; r++) { // unroll
    top[r] = LOWEST;
    for (var s = 0u; s < PLACES; s++) { // unroll
      let mine = query(row + r / SHARE, head + r % SHARE, s * 8 + lane, seen) * params.scale;
      for (var i = 0u; i < 8; i++) { // unroll
        q[r][s * 8 + i] = subgroupBroadcast(mine, i);
      }
    }
  }
  for (var at = 0u; at < seen + QROWS - 1; at += 8 * BLOCKS) {
    var score = array<array<f32, QUERIES>, BLOCKS>();
    var block: array<u32, BLOCKS>;
    for (var b = 0u; b < BLOCKS; b++) { // unroll
      block[b] = block_at(row, at + b * 8, seen);
    }
    for (var i = 0u; i < D4; i++) { // unroll
      for (var b = 0u; b < BLOCKS; b++) { // unroll
        let k = textureLoad(t_kt, vec2((kv * D4 + i) * 8 + lane, block[b] % LAYER_ROWS), block[b] / LAYER_ROWS);
        for (var r = 0u; r < QUERIES; r++) { // unroll
          score[b][r] += dot(q[r][i], k);
        }
      }
    }
    for (var r = 0u; r < QUERIES; r++) { // unroll
      var high = LOWEST;
      for (var b = 0u; b < BLOCKS; b++) { // unroll
        score[b][r] = select(MASKED, score[b][r], at + b * 8 + lane < seen + r / SHARE);
        high = max(high, score[b][r]);
      }
      high = max(top[r], max8(high));
      let shrink = exp(top[r] - high);
      top[r] = high;
      total[r] *= shrink;
      for (var s = 0u; s < PLACES; s++) { // unroll
        acc[r][s] *= shrink;
      }
      for (var b = 0u; b < BLOCKS; b++) { // unroll
        score[b][r] = exp(score[b][r] - high);
        total[r] += score[b][r];
      }
    }
    for (var j = 0u; j < 8; j++) { // unroll
      for (var s = 0u; s < PLACES; s++) { // unroll
        for (var b = 0u; b < BLOCKS; b++) { // unroll
          let v = textureLoad(t_vt, vec2((kv * 8 + j) * D4 + s * 8 + lane, block[b] % LAYER_ROWS), block[b] / LAYER_ROWS);
          for (var r = 0u; r < QUERIES; r++) { // unroll
            // A weight of 0 would not do: 0 * NaN is NaN.
            let live = at + b * 8 + j < seen + r / SHARE;
            acc[r][s] += subgroupBroadcast(score[b][r], j) * select(vec4<f32>(), v, live);
          }
        }
      }
    }
  }
  for (var r = 0u; r < QUERIES; r++) { // unroll
    let sum = sum8(total[r]);
    for (var s = 0u; s < PLACES; s++) { // unroll
      if (s * 8 + lane < D4) { store(row + r / SHARE, head + r % SHARE, s * 8 + lane, acc[r][s] / sum); }
    }
  }
}
