"""A model that runs: delegates on the GPU, the kernels between them on the CPU."""
