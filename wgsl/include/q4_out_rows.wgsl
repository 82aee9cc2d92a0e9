// Stores the rows of a linear: OUTS outputs with bias and residual added, or one output of a SwiGLU. `// if` lines remove
// what a form does not have, because every binding costs host time in every call, and lavapipe executes both sides of a
// branch lane by lane. (It also specialises the code on uniforms that decide a branch, and compiles it for each value.)
// include: q4_texel
const OUTS: u32 = 3;  // plan: outputs
const SWIGLU: u32 = 0;  // plan: 1 if a lane's four columns are two of gate and two of up
const EDGE: u32 = 1;  // plan: 0 if every strip is complete, so that no store needs a bounds check
const WIDE: u32 = 1;  // plan: elements per store: all of a lane's columns if every width is a multiple of that, otherwise 1
alias CELL = f32;  // if WIDE == 1
// if WIDE == 2: alias CELL = vec2<f32>;
// if WIDE == 4: alias CELL = vec4<f32>;

struct Params {
  n0: u32, n1: u32, n2: u32,  // widths of the outputs
  strip1: u32, strip2: u32,   // where the strips of outputs 1 and 2 begin
  rows: u32, out_row: u32, eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(5) var<storage, read> t_bias: array<vec4<f32>>;  // if BIAS
@group(0) @binding(6) var<storage, read> t_res: array<CELL>;  // if RESIDUAL
@group(0) @binding(7) var<storage, read_write> t_out0: array<CELL>;
@group(0) @binding(8) var<storage, read_write> t_out1: array<CELL>;  // if OUTS > 1
@group(0) @binding(9) var<storage, read_write> t_out2: array<CELL>;  // if OUTS > 2

fn put(part: u32, at: u32, y: CELL) {
  if (part == 0) { t_out0[at] = y; }
  if (part == 1) { t_out1[at] = y; }  // if OUTS > 1
  if (part == 2) { t_out2[at] = y; }  // if OUTS > 2
}

fn inside(n: u32, wide: u32) -> bool { return EDGE == 0 || n < wide; }

// Stores the columns of a lane, from n on, of one row of output `part`, which is `wide` columns wide. A software adapter checks
// the place of every store lane by lane, so a vector costs less than four stores.
fn put_row(part: u32, row: u32, n: u32, wide: u32, y: vec4<f32>) {
  let at = (params.out_row + row) * wide + n;
  // if WIDE > 1: if (!inside(n, wide)) { return; }
  // if WIDE == 4: var cell = y;
  // if WIDE == 2: var cell = y.xy;
  // if WIDE > 1 and RESIDUAL: cell += t_res[at / WIDE];
  // if WIDE > 1: put(part, at / WIDE, cell);
  var r = vec4<f32>();  // if WIDE == 1
  if (inside(n, wide)) { r = vec4(t_res[at], t_res[at + 1], t_res[at + 2], t_res[at + 3]); }  // if RESIDUAL and WIDE == 1
  if (inside(n, wide)) { put(part, at, y.x + r.x); }  // if WIDE == 1
  if (inside(n + 1, wide)) { put(part, at + 1, y.y + r.y); }  // if WIDE == 1
  if (SWIGLU == 0 && inside(n + 2, wide)) { put(part, at + 2, y.z + r.z); }  // if WIDE == 1
  if (SWIGLU == 0 && inside(n + 3, wide)) { put(part, at + 3, y.w + r.w); }  // if WIDE == 1
}

fn store_row(row: u32, strip: u32, lane: u32, v: vec4<f32>) {
  if (row >= params.rows) { return; }
  if (SWIGLU == 1) {  // v.xy is gate, v.zw is up
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
