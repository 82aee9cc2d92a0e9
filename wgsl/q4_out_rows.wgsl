// Where a linear's rows go: OUTS outputs, with BIAS and RESIDUAL added, or one of SWIGLU. What a form does not have is not in
// its text: every binding costs the host time in every call, and lavapipe goes through both sides of a branch, lane by lane
// where they load or store (and where uniforms alone decide, it puts their values into the code and compiles it again for
// each dispatch).
struct Params {
  n0: u32, n1: u32, n2: u32,  // widths of the outputs
  strip1: u32, strip2: u32,   // where the strips of outputs 1 and 2 begin
  rows: u32, out_row: u32, eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(5) var<storage, read> t_bias: array<vec4<f32>>;  // if BIAS
@group(0) @binding(6) var<storage, read> t_res: array<f32>;  // if RESIDUAL
@group(0) @binding(7) var<storage, read_write> t_out0: array<f32>;
@group(0) @binding(8) var<storage, read_write> t_out1: array<f32>;  // if OUTS > 1
@group(0) @binding(9) var<storage, read_write> t_out2: array<f32>;  // if OUTS > 2

fn put(part: u32, at: u32, y: f32) {
  if (part == 0) { t_out0[at] = y; }
  if (part == 1) { t_out1[at] = y; }  // if OUTS > 1
  if (part == 2) { t_out2[at] = y; }  // if OUTS > 2
}

// Without an EDGE all strips are full of columns that there are.
fn inside(n: u32, wide: u32) -> bool { return EDGE == 0 || n < wide; }

// Columns n.. of one row of one output, four (with SWIGLU two); `wide` is that output's width.
fn put_row(part: u32, row: u32, n: u32, wide: u32, y: vec4<f32>) {
  let at = (params.out_row + row) * wide + n;
  var r = vec4<f32>();
  if (inside(n, wide)) { r = vec4(t_res[at], t_res[at + 1], t_res[at + 2], t_res[at + 3]); }  // if RESIDUAL
  if (inside(n, wide)) { put(part, at, y.x + r.x); }
  if (inside(n + 1, wide)) { put(part, at + 1, y.y + r.y); }
  if (SWIGLU == 0 && inside(n + 2, wide)) { put(part, at + 2, y.z + r.z); }
  if (SWIGLU == 0 && inside(n + 3, wide)) { put(part, at + 3, y.w + r.w); }
}

fn store_row(row: u32, strip: u32, lane: u32, v: vec4<f32>) {
  if (row >= params.rows) { return; }
  if (SWIGLU == 1) {  // of two columns gate, then up
    let y = v.xy / (1.0 + exp(-v.xy)) * v.zw;
    put_row(0, row, (strip * LANES + lane) * 2, params.n0, vec4(y, 0.0, 0.0));
    return;
  }
  var y = v;
  y += t_bias[strip * LANES + lane];  // if BIAS
  if (OUTS == 1 || strip < params.strip1) { put_row(0, row, (strip * LANES + lane) * 4, params.n0, y); }
  else if (OUTS == 2 || strip < params.strip2) { put_row(1, row, ((strip - params.strip1) * LANES + lane) * 4, params.n1, y); }
  else { put_row(2, row, ((strip - params.strip2) * LANES + lane) * 4, params.n2, y); }
}
