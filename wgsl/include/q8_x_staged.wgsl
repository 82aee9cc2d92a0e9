// One f32 row, normalised and rounded here, without subgroups: lanes exchange the pairs in workgroup memory. As in q8_x_fresh.wgsl,
// every workgroup reads the whole row first.
// include: q8_int
// include: q8_pairs
// include: q8_range
// include: row_workgroup
const ROUND: u32 = 1;
const WG: u32 = LANES;
const SHARED: u32 = (K / 8 + WG - 1) / WG * WG;

@group(0) @binding(3) var<uniform> t_x: array<vec4<f32>, K / 4>;
@group(0) @binding(4) var<uniform> t_norm: array<vec4<f32>, K / 4>;  // if NORM

fn pairs(at: u32) -> vec4<u32> { return shared_words[at]; }

fn prepare(lane: u32) {
  look_through(0, lane, WG);
  workgroupBarrier();  // the range may still be read
  for (var i = lane; i < K / 8; i += WG) {
    let upper = vec4<i32>(steps(t_x[i * 2], weight(i * 2)));
    let lower = vec4<i32>(steps(t_x[i * 2 + 1], weight(i * 2 + 1)));
    shared_words[i] = bitcast<vec4<u32>>((upper << vec4(16u)) + lower);
  }
  workgroupBarrier();
}

fn load_x(row: u32, b: u32, lane: u32) -> X { return x_at(b * 4); }

fn factor(row: u32, square: f32) -> f32 { return size; }
