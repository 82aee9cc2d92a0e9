// Rounds a row to 8-bit steps of its own range. Its norm is computed first and multiplied in the order of rms_norm, because
// the last bit can decide between two steps. The file that includes this one has t_x, t_norm and ROUND; a row_* file has
// row_joined.
// include: nan
// include: norm_flag
struct Row { low: f32, high: f32, square: f32 }

var<private> norm: f32;
var<private> size: f32;  // step size
var<private> zero: f32;

fn weight(i: u32) -> vec4<f32> {
  var w = vec4(1.0);
  w = t_norm[i];  // if NORM
  return w;
}

// Sets norm, size and zero for the row that begins at `base`; `lanes` lanes share the work.
fn look_through(base: u32, lane: u32, lanes: u32) {
  var row = Row();
  norm = 1.0;
  if (NORM == 1) {
    for (var i = lane; i < K / 4; i += lanes) { row.square += dot(t_x[base + i], t_x[base + i]); }
    norm = inverseSqrt(row_joined(row, lane).square / f32(K) + params.eps);
    row.square = 0.0;
  }
  size = 1.0;
  if (ROUND == 0) { return; }
  for (var i = lane; i < K / 4; i += lanes) {
    let v = t_x[base + i] * norm * weight(i);
    row.square += dot(v, v);
    row.low = min(row.low, min(min(v.x, v.y), min(v.z, v.w)));
    row.high = max(row.high, max(max(v.x, v.y), max(v.z, v.w)));
  }
  row = row_joined(row, lane);
  size = max((row.high - row.low) / 255.0, 0x1p-23);
  // min and max ignore NaN and integers have none, so a row with NaN gets NaN as its step size.
  size = select(size, row.square, is_nan(row.square));
  zero = clamp(-128.0 - round(row.low / size), -128.0, 127.0);
}

// x as the 8-bit integers of its row.
fn quantized(x: vec4<f32>, weight: vec4<f32>) -> vec4<f32> {
  return clamp(round(x * norm * weight * (1.0 / size)) + zero, vec4(-128.0), vec4(127.0));
}

// x in steps from the zero point.
fn steps(x: vec4<f32>, weight: vec4<f32>) -> vec4<f32> { return quantized(x, weight) - zero; }
