// The best of the chunks' bests: there are few, so one lane looks at all of them.
struct Params { parts: u32 }
struct Best { value: f32, index: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_best: array<Best>;
@group(0) @binding(2) var<storage, read_write> t_out: array<i32>;

@compute @workgroup_size(1)
fn main() {
  var best = t_best[0];
  for (var i = 1u; i < params.parts; i++) {
    let other = t_best[i];
    if (other.value > best.value) { best = other; }
  }
  t_out[0] = i32(min(best.index, 0x7fffffffu));
}
