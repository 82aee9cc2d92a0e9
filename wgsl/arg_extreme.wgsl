// Index of the largest or smallest element of a row, the first of equals: one workgroup per row. The elements of a row are
// `inner` apart. A NaN is both larger and smaller than all others.
// include: nan
struct Params { rows: u32, size: u32, inner: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<i32>;

var<workgroup> values: array<f32, WG>;
var<workgroup> places: array<u32, WG>;

fn is_better(v: f32, at: u32, best: f32, place: u32) -> bool {
  let more = v > best;  // plan SIGN is >
  let v_nan = is_nan(v);
  let best_nan = is_nan(best);
  if (v_nan || best_nan) { return v_nan && (!best_nan || at < place); }
  return more || (v == best && at < place);
}

// include: row_grid
fn run(row: u32, lane: u32) {
  if (row >= params.rows) { return; }
  let base = row / params.inner * params.inner * params.size + row % params.inner;
  var place = min(lane, params.size - 1u);
  var best = t_x[base + place * params.inner];
  for (var i = lane + WG; i < params.size; i += WG) {
    let v = t_x[base + i * params.inner];
    if (is_better(v, i, best, place)) {
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
      if (is_better(v, places[lane + half], values[lane], places[lane])) {
        values[lane] = v;
        places[lane] = places[lane + half];
      }
    }
    workgroupBarrier();
  }
  if (lane == 0u) { t_out[row] = i32(places[0]); }
}
