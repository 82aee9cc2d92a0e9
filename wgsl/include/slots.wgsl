// SymInts that kernels read at run time, so that a new position needs no new plan.
@group(0) @binding(1) var<uniform> slots: array<vec4<i32>, 16>;
fn slot(i: u32) -> u32 { return u32(slots[i >> 2u][i & 3u]); }
