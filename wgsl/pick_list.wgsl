// Lists the logits of the bins in which top-k, top-p, min-p or the draw may end.
const WG: u32 = 64;  // plan: invocations per workgroup
// include: pick
// include: pick_weight
@group(0) @binding(2) var<storage, read> t_x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> t_ends: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> t_list: array<vec2<u32>>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let part = wid.y * count.x + wid.x;
  let most = value_of(atomicLoad(&t_ends[1]));
  let k_at = atomicLoad(&t_ends[2]);
  let m_at = atomicLoad(&t_ends[3]);
  let p_from = atomicLoad(&t_ends[4]);
  let p_to = atomicLoad(&t_ends[5]);
  let d_from = atomicLoad(&t_ends[6]);
  let d_to = atomicLoad(&t_ends[7]);
  let end = min(fours(), (part + 1u) * params.chunk);
  for (var i = part * params.chunk + lane; i < end; i += WG) {
    let ids = ids_of(i);
    let t = select(vec4(FAR), steps_of(t_x[params.base / 4u + i], most), ids < vec4(params.count));
    let at = t >> vec4(16u);
    let k_or_m = (at == vec4(k_at)) | (at == vec4(m_at));
    let p_or_d = ((at >= vec4(p_from)) & (at <= vec4(p_to))) | ((at >= vec4(d_from)) & (at <= vec4(d_to)));
    for (var rest = bits_of((k_or_m | p_or_d) & (t < vec4(FAR))); rest != 0u; rest &= rest - 1u) {
      let c = countTrailingZeros(rest);
      t_list[atomicAdd(&t_ends[0], 1u)] = vec2(4u * t[c], ids[c]);
    }
  }
}
