"""Everything that touches wgpu: adapters, device, buffers, command streams, tuning."""
