// Where the extreme of a row is, the first of equals: a workgroup a row whose elements are `inner` apart.
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
    if (v $SIGN best) {
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
      if (v $SIGN values[lane] || (v == values[lane] && places[lane + half] < places[lane])) {
        values[lane] = v;
        places[lane] = places[lane + half];
      }
    }
    workgroupBarrier();
  }
  if (lane == 0u) { t_out[row] = i32(places[0]); }
}
