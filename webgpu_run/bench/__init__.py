"""What webgpu-bench measures and how it reports it."""
