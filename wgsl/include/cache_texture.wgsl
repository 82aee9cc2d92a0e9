// The shape of KV caches that are textures. A row holds eight positions, a layer LAYER_ROWS rows.
const HEADS: u32 = 4;  // plan: query heads
const KV_HEADS: u32 = 2;  // plan: key heads
const D: u32 = 64;  // plan: head_dim
const LAYER_ROWS: u32 = 16;  // plan
const D4: u32 = D / 4;
