// RMS norm with one workgroup per row. Lanes stride over its params.width elements of type V, then reduce in workgroup
// memory. The file that includes this one has V, its number of components (LANES) and their `sum`.
const PER_ROW: u32 = 0;  // plan: 1 if the weight has one element per row, with V = f32

struct Params { rows: u32, width: u32, eps: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<V>;
@group(0) @binding(2) var<storage, read> t_weight: array<V>;
@group(0) @binding(3) var<storage, read_write> t_out: array<V>;

var<workgroup> part: array<f32, WG>;

// include: row_grid
fn run(row: u32, lane: u32) {
  if (row >= params.rows) { return; }
  let base = row * params.width;
  var square = V(0.0);
  for (var i = lane; i < params.width; i += WG) {
    let v = t_x[base + i];
    square = fma(v, v, square);
  }
  part[lane] = sum(square);
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
  }
  let scale = inverseSqrt(part[0] / f32(LANES * params.width) + params.eps);
  for (var i = lane; i < params.width; i += WG) {
    t_out[base + i] = t_x[base + i] * scale * t_weight[i];  // if PER_ROW == 0
    // if PER_ROW: t_out[base + i] = t_x[base + i] * scale * t_weight[row];
  }
}
