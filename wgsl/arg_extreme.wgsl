// Index of the largest or smallest element of a row, the first of equals: one workgroup per row. The elements of a row are
// `inner` apart.
struct Params { rows: u32, size: u32, inner: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<i32>;

var<workgroup> values: array<f32, WG>;
var<workgroup> places: array<u32, WG>;

// include: row_grid
fn run(row: u32, lane: u32) {
  if (row >= params.rows) { return; }
  let base = row / params.inner * params.inner * params.size + row % params.inner;
  var place = min(lane, params.size - 1u);
  var best = t_x[base + place * params.inner];
  for (var i = lane + WG; i < params.size; i += WG) {
    let v = t_x[base + i * params.inner];
    if (v > best) {  // plan SIGN is >
      best = v;
      place = i;
    }
  }
  values[lane] = best;
  places[lane] = place;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      let v = values[lane + half];
      let first = v == values[lane] && places[lane + half] < places[lane];
      if (v > values[lane] || first) {  // plan SIGN is >
        values[lane] = v;
        places[lane] = places[lane + half];
      }
    }
    workgroupBarrier();
  }
  if (lane == 0u) { t_out[row] = i32(places[0]); }
}
