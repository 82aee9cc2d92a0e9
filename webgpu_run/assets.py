"""Where the files that ship with the package are: kernels and the bundled model."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def wgsl_dir() -> Path:
    """The kernels: inside an installed package, or at the top of a checkout."""
    inside = _HERE / "wgsl"
    return inside if inside.is_dir() else _HERE.parent / "wgsl"


def model_dir() -> Path:
    """The bundled model."""
    return _HERE / "model"
