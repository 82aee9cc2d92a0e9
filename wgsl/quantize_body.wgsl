// Rows, normalised first where NORM is 1, rounded to the 8-bit steps of their own range and still f32: a workgroup a row,
// its lanes each with every WG-th vector. The norm multiplies in the order of the op it stands for: a last bit decides
// between two steps. `joined` comes from a row_* file.
struct Params { rows: u32, width: u32, low: i32, high: i32, eps: f32, norm_eps: f32 }

alias V = $V;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<V>;
@group(0) @binding(2) var<storage, read> t_norm: array<V>;
@group(0) @binding(3) var<storage, read_write> t_out: array<V>;

struct Row { low: f32, high: f32, square: f32 }

fn least4(v: vec4<f32>) -> f32 { return min(min(v.x, v.y), min(v.z, v.w)); }
fn most4(v: vec4<f32>) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }
fn sum4(v: vec4<f32>) -> f32 { return dot(v, vec4<f32>(1.0)); }

fn value(base: u32, i: u32, norm: f32) -> V {
  if (NORM == 1u) { return t_x[base + i] * norm * t_norm[i]; }
  return t_x[base + i];
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = wid.y * count.x + wid.x;
  if (row >= params.rows) { return; }
  let vectors = params.width / LANES;
  let base = row * vectors;
  var norm = 1.0;
  if (NORM == 1u) {
    var square = V(0.0);
    for (var i = lane; i < vectors; i += WG) { square = fma(t_x[base + i], t_x[base + i], square); }
    norm = inverseSqrt(joined(Row(0.0, 0.0, $SUM(square)), lane).square / f32(params.width) + params.norm_eps);
  }
  var low = V(0.0);
  var high = V(0.0);
  for (var i = lane; i < vectors; i += WG) {
    let v = value(base, i, norm);
    low = min(low, v);
    high = max(high, v);
  }
  let all = joined(Row($LEAST(low), $MOST(high), 0.0), lane);
  let least = f32(params.low);
  let most = f32(params.high);
  let scale = max((all.high - all.low) / (most - least), params.eps);
  let zero = clamp(least - round(all.low / scale), least, most);
  let inverse = 1.0 / scale;
  for (var i = lane; i < vectors; i += WG) {
    let step = clamp(round(value(base, i, norm) * inverse) + V(zero), V(least), V(most));
    t_out[base + i] = (step - V(zero)) * scale;
  }
}
