// The windows of a pooling: size = input height, width, output height, width; taps = window and dilations; shift =
// strides and paddings.
struct Params { count: u32, size: vec4<u32>, taps: vec4<u32>, shift: vec4<u32> }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> t_x: array<f32>;
@group(0) @binding(2) var<storage, read_write> t_out: array<f32>;

// Row and column where the window of output i starts, below zero in the padding before the image.
fn corner(i: u32) -> vec2<i32> {
  let at = vec2<u32>(i / params.size.w % params.size.z, i % params.size.w);
  return vec2<i32>(at * params.shift.xy) - vec2<i32>(params.shift.zw);
}

// Whether a place is before the end of the image plus `padding`.
fn before_end(at: vec2<i32>, padding: vec2<u32>) -> bool {
  return all(at < vec2<i32>(params.size.xy + padding));
}

// Where the plane of output i starts.
fn plane(i: u32) -> u32 { return i / (params.size.w * params.size.z) * params.size.x * params.size.y; }

fn inside(at: vec2<i32>) -> bool { return all(at >= vec2<i32>(0)) && before_end(at, vec2<u32>(0u)); }

// include: lane_grid
