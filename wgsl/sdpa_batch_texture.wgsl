// Causal attention of a batch over texture caches with online softmax. A workgroup of eight lanes serves one row and SHARE
// query heads of one key head, as sdpa_texture.wgsl does for one sequence: for scores a lane owns a position, for values
// four elements of D. Positions past the row's own are read but never enter a sum.
// include: sum8_subgroup
struct Params { pos_slot: u32, scale: f32 }
@group(0) @binding(0) var<uniform> params: Params;
// include: rows_cache
const SHARE: u32 = 2;  // plan: query heads per workgroup
const LAYER_ROWS: u32 = 16;  // plan: rows per layer of a texture
const BLOCKS: u32 = 2;  // blocks of eight positions that share the loads of q

@group(0) @binding(6) var t_kt: texture_storage_2d_array<rgba32float, read>;  // plan CACHE is rgba32float
@group(0) @binding(7) var t_vt: texture_storage_2d_array<rgba32float, read>;  // plan CACHE is rgba32float
@group(0) @binding(8) var<storage, read_write> t_out: array<vec4<f32>>;

const PLACES: u32 = (D4 + 7) / 8;
const LOWEST: f32 = -1e30;
const MASKED: f32 = -3e38;  // far below LOWEST, so its weight is 0 even if no score is above LOWEST

fn max8(v: f32) -> f32 {
  var m = max(v, subgroupShuffleXor(v, 1u));
  m = max(m, subgroupShuffleXor(m, 2u));
  return max(m, subgroupShuffleXor(m, 4u));
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wid.y;
  let head = wid.x * SHARE;
  let kv = head / (HEADS / KV_HEADS);
  let pos = position_of(row);
  var q: array<array<vec4<f32>, PLACES * 8>, SHARE>;
  var top: array<f32, SHARE>;
  var total: array<f32, SHARE>;
  var acc: array<array<vec4<f32>, PLACES>, SHARE>;
  for (var r = 0u; r < SHARE; r++) { // unroll
    top[r] = LOWEST;
    for (var s = 0u; s < PLACES; s++) { // unroll
      let mine = turned((row * HEADS + head + r) * D4 + min(s * 8 + lane, D4 - 1), pos) * params.scale;
      for (var i = 0u; i < 8; i++) { // unroll
        q[r][s * 8 + i] = subgroupBroadcast(mine, i);
      }
    }
  }
  for (var at = 0u; at <= pos; at += 8 * BLOCKS) {
    var score = array<array<f32, SHARE>, BLOCKS>();
    var block: array<u32, BLOCKS>;
    for (var b = 0u; b < BLOCKS; b++) { // unroll
      block[b] = block_of(row, min(at + b * 8, pos));
    }
    for (var i = 0u; i < D4; i++) { // unroll
      for (var b = 0u; b < BLOCKS; b++) { // unroll
        let k = textureLoad(t_kt, vec2((kv * D4 + i) * 8 + lane, block[b] % LAYER_ROWS), block[b] / LAYER_ROWS);
        for (var r = 0u; r < SHARE; r++) { // unroll
          score[b][r] += dot(q[r][i], k);
        }
      }
    }
    for (var r = 0u; r < SHARE; r++) { // unroll
      var high = LOWEST;
      for (var b = 0u; b < BLOCKS; b++) { // unroll
        score[b][r] = select(MASKED, score[b][r], at + b * 8 + lane <= pos);
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
          for (var r = 0u; r < SHARE; r++) { // unroll
            // A weight of 0 would not do: 0 * NaN is NaN.
            acc[r][s] += subgroupBroadcast(score[b][r], j) * select(vec4<f32>(), v, at + b * 8 + j <= pos);
          }
        }
      }
    }
  }
  for (var r = 0u; r < SHARE; r++) { // unroll
    let sum = sum8(total[r]);
    for (var s = 0u; s < PLACES; s++) { // unroll
      if (s * 8 + lane < D4) { t_out[(row * HEADS + head + r) * D4 + s * 8 + lane] = acc[r][s] / sum; }
    }
  }
}
