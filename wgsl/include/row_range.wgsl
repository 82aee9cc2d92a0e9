// The 8-bit scale and zero point of a row from its smallest and largest element, by one workgroup. The scale of
// a row with NaN is NaN.
// include: nan
var<workgroup> least: array<f32, WG>;
var<workgroup> most: array<f32, WG>;

fn row_qparams(lo: f32, hi: f32, lane: u32) -> vec2<f32> {
  least[lane] = nan_min(lo, 0.0);
  most[lane] = nan_max(hi, 0.0);
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      least[lane] = nan_min(least[lane], least[lane + half]);
      most[lane] = nan_max(most[lane], most[lane + half]);
    }
    workgroupBarrier();
  }
  let low = f32(params.low);
  let high = f32(params.high);
  let scale = nan_max((most[0] - least[0]) / (high - low), params.eps);
  return vec2<f32>(scale, clamp(low - round(least[0] / scale), low, high));
}
