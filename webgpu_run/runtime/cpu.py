"""Numpy kernels for the operators that exporters leave outside the delegates, by their registered names."""

from __future__ import annotations

from . import cpu_image, cpu_math, cpu_moves, cpu_quant, cpu_reduce, cpu_resample, cpu_scatter
from .cpu_table import KERNELS, CpuKernel

__all__ = ["KERNELS", "CpuKernel"]
_MODULES = (
    cpu_image,
    cpu_math,
    cpu_moves,
    cpu_quant,
    cpu_reduce,
    cpu_resample,
    cpu_scatter,
)  # each adds its kernels on import
