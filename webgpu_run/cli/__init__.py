"""The commands webgpu-run and webgpu-bench."""
