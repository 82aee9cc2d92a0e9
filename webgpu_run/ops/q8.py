"""Rows in 8-bit steps: scale and zero point from each row's own range, and the dispatches that make rows ready."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..shapes import Array
from .limits import Limits
from .plan import Step, Window, fold

EPS = float(np.finfo(np.float32).eps)  # the least scale, as the exporter has it and the kernels
LOW, HIGH = -128, 127


def qparams(x: Array, low: int = LOW, high: int = HIGH, eps: float = EPS) -> tuple[Array, Array]:
    """Scale and zero point of each row, in f32 as the exporter's own formula has it."""
    x = x.astype(np.float32)
    least, most = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
    scale = np.maximum((most - least) / np.float32(high - low), np.float32(eps))
    return scale, np.clip(low - np.rint(least / scale), low, high).astype(np.int32)


def rounded(x: Array, scale: Array, zero: Array) -> Array:
    """x as its 8-bit steps say, still in f32."""
    one = np.float32(1)
    q = np.clip(np.rint(x.astype(np.float32) * (one / scale)[..., None]) + zero[..., None], LOW, HIGH)
    stepped: Array = (q - zero[..., None]).astype(np.float32) * scale[..., None]
    return stepped


def ready_steps(
    m: int, k: int, window: int, eps: float, x: str, norm: str | None, limits: Limits, *, rounded: bool, packed: bool
) -> Iterator[Step]:
    """m rows, normalised where there is a norm, rounded if asked for, into `normed`: packed with their `sizes`, or f32.

    Software adapters read x through a uniform window a dispatch: from storage it costs ten times as much.
    """
    profile = limits.profile
    uniform = profile.images
    rename = (("x", x), ("norm", norm or ""), ("out", "normed"))
    for first in range(0, m, window):
        live = min(window, m - first)
        yield Step(
            "ready_rows_subgroup" if profile.shuffle else "ready_rows",
            (("rows", live), ("first", first), ("eps", eps)),
            fold(live, limits, f"{live} rows"),
            (
                ("WG", 8 if profile.shuffle else profile.workgroup),
                ("K", k),
                ("NORM", int(norm is not None)),
                ("ROUND", int(rounded)),
                ("PACKED", int(packed)),
                ("SPACE", "uniform" if uniform else "storage, read"),
                ("X_SIZE", f", {window * k // 4}" if uniform else ""),
                ("NORM_SIZE", f", {k // 4}" if uniform else ""),
            ),
            ((x, Window(first * k * 4, window * k * 4)),) if uniform else (),
            rename,
            (live * k * (6 if packed else 8), (6 if rounded else 4) * live * k),
        )
