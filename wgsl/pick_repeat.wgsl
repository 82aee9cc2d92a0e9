// A copy of the last row of logits in which those of recent tokens are lowered: a positive logit is multiplied by the
// inverse of the penalty, any other by the penalty. A workgroup copies one chunk, then changes the recent tokens in it.
struct Params { base: u32, count: u32, chunk: u32, recent: u32 }

const WG: u32 = 64;  // plan: invocations per workgroup
const AT: u32 = 0;  // plan: where the penalty is in t_how; its inverse and the recent ids follow
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read> t_how: array<u32>;
@group(0) @binding(3) var<storage, read_write> t_lowered: array<f32>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let first = (wid.y * count.x + wid.x) * params.chunk;
  let end = min(params.count, first + params.chunk);
  for (var i = first + lane; i < end; i += WG) { t_lowered[i] = t_x[params.base + i]; }
  storageBarrier();
  for (var i = lane; i < params.recent; i += WG) {
    let id = t_how[AT + 2u + i];
    if (id >= first && id < end) {
      let logit = t_x[params.base + id];
      t_lowered[id] = logit * bitcast<f32>(t_how[AT + select(0u, 1u, logit > 0.0)]);
    }
  }
}
