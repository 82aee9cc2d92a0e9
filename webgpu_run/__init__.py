"""Run and measure ExecuTorch .pte models on any GPU, through WebGPU."""

__version__ = "0.1.0"
