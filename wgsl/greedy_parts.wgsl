// The largest element of one chunk of a row, and where it is; of equals the first, as numpy's argmax.
struct Params { base: u32, count: u32, chunk: u32 }
struct Best { value: f32, index: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_best: array<Best>;

var<workgroup> found: array<Best, WG>;

fn better(a: Best, b: Best) -> Best {
  if (b.value > a.value || (b.value == a.value && b.index < a.index)) { return b; }
  return a;
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let part = wid.y * count.x + wid.x;
  var best = Best(-3.4e38, 0xffffffffu);
  let end = min(params.count, (part + 1u) * params.chunk);
  for (var i = part * params.chunk + lane; i < end; i += WG) {
    best = better(best, Best(t_x[params.base + i], i));
  }
  found[lane] = best;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lane < half) { found[lane] = better(found[lane], found[lane + half]); }
    workgroupBarrier();
  }
  if (lane == 0u && part * params.chunk < params.count) { t_best[part] = found[0]; }
}
