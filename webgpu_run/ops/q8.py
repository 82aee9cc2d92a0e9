"""Activations rounded to 8 bits: scale and zero point from each row's own range, as the exporter computes them."""

from __future__ import annotations

import numpy as np

from ..shapes import Array

EPS = float(np.finfo(np.float32).eps)  # smallest scale, in the exporter's formula and in the kernels
LOW, HIGH = -128, 127


def qparams(x: Array, low: int = LOW, high: int = HIGH, eps: float = EPS) -> tuple[Array, Array]:
    """Scale and zero point of each row, in f32 as in the exporter's formula."""
    x = x.astype(np.float32)
    least, most = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
    scale = np.maximum((most - least) / np.float32(high - low), np.float32(eps))
    return scale, np.clip(low - np.rint(least / scale), low, high).astype(np.int32)


def rounded(x: Array, scale: Array, zero: Array) -> Array:
    """x rounded to its 8-bit steps, still in f32."""
    one = np.float32(1)
    q = np.clip(np.rint(x.astype(np.float32) * (one / scale)[..., None]) + zero[..., None], LOW, HIGH)
    stepped: Array = (q - zero[..., None]).astype(np.float32) * scale[..., None]
    return stepped
