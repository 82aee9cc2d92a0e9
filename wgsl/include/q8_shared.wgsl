// For subgroups of at least 8: lane j of every 8 has pairs 2 j and 2 j + 1 of a block's 16 and broadcasts them.
fn shared_x(upper: vec2<i32>, lower: vec2<i32>) -> X {
  let mine = bitcast<vec2<u32>>((upper << vec2(16u)) + lower);
  var sum = (upper.x + upper.y + lower.x + lower.y) * -8;
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
  sum += subgroupShuffleXor(sum, 4u);
  let a = mine.x;
  let b = mine.y;
  return X(array(
    vec4(subgroupBroadcast(a, 0u), subgroupBroadcast(a, 2u), subgroupBroadcast(a, 4u), subgroupBroadcast(a, 6u)),
    vec4(subgroupBroadcast(b, 0u), subgroupBroadcast(b, 2u), subgroupBroadcast(b, 4u), subgroupBroadcast(b, 6u)),
    vec4(subgroupBroadcast(a, 1u), subgroupBroadcast(a, 3u), subgroupBroadcast(a, 5u), subgroupBroadcast(a, 7u)),
    vec4(subgroupBroadcast(b, 1u), subgroupBroadcast(b, 3u), subgroupBroadcast(b, 5u), subgroupBroadcast(b, 7u))), sum, 0.0);
}
