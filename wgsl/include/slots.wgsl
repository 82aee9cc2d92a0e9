// SymInts that kernels read at run time, so that a new position needs no new plan.
@group(0) @binding(1) var<uniform> slots: array<vec4<i32>, 16>;
const TURN: u32 = 63;  // the slot with the number of the turn in a submission
fn slot(i: u32) -> u32 { return u32(slots[i >> 2u][i & 3u]); }
