// Every lane reads all 16 pairs of a block itself.
// include: q8_packed
// include: q8_pairs
fn pairs(at: u32) -> vec4<u32> { return t_x[at]; }

fn load_x(row: u32, b: u32, lane: u32) -> X { return x_at(row * (K / 8) + b * 4); }
