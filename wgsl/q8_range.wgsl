// A row's 8-bit steps from its range. The norm, found first, multiplies in the order of the op it stands for: a last bit
// decides between two steps. t_x and t_norm are the file's that includes this, row_joined comes from a row_* file.
struct Row { low: f32, high: f32, square: f32 }

var<private> norm: f32;
var<private> size: f32;  // of a step
var<private> zero: f32;

fn weight(i: u32) -> vec4<f32> {
  var w = vec4(1.0);
  w = t_norm[i];  // if NORM
  return w;
}

// Sets the above for the row that begins at `base`, by `lanes` lanes together.
fn look_through(base: u32, lane: u32, lanes: u32) {
  var row = Row();
  norm = 1.0;
  if (NORM == 1) {
    for (var i = lane; i < K / 4; i += lanes) { row.square += dot(t_x[base + i], t_x[base + i]); }
    norm = inverseSqrt(row_joined(row, lane).square / f32(K) + params.eps);
  }
  size = 1.0;
  if (ROUND == 0) { return; }
  for (var i = lane; i < K / 4; i += lanes) {
    let v = t_x[base + i] * norm * weight(i);
    row.low = min(row.low, min(min(v.x, v.y), min(v.z, v.w)));
    row.high = max(row.high, max(max(v.x, v.y), max(v.z, v.w)));
  }
  row = row_joined(row, lane);
  size = max((row.high - row.low) / 255.0, 0x1p-23);
  zero = clamp(-128.0 - round(row.low / size), -128.0, 127.0);
}

// Steps from the zero point.
fn steps(x: vec4<f32>, weight: vec4<f32>) -> vec4<f32> {
  return clamp(round(x * norm * weight * (1.0 / size)) + zero, vec4(-128.0), vec4(127.0)) - zero;
}
