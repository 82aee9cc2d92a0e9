// The input place that tap `tap` of output place `at` reads, or -1.
fn place(at: u32, tap: u32, stride: u32, pad: u32, dilation: u32, size: u32) -> i32 {
  var n: i32;
  if (TRANSPOSED == 1u) {
    n = i32(at + pad) - i32(tap * dilation);
    if (n < 0 || u32(n) % stride != 0u) { return -1; }
    n /= i32(stride);
  } else {
    n = i32(at * stride + tap * dilation) - i32(pad);
  }
  if (n < 0 || n >= i32(size)) { return -1; }
  return n;
}
