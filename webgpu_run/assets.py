"""Where the files are that come with the package: kernels and the demo model."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def wgsl_dir() -> Path:
    """The kernels: inside an installed package, beside the package in a checkout."""
    inside = _PACKAGE / "wgsl"
    return inside if inside.is_dir() else _PACKAGE.parent / "wgsl"


def model_dir() -> Path:
    """The bundled model and its tokenizer."""
    return _PACKAGE / "model"


def bundled_model() -> Path | None:
    """The demo model, where there is one."""
    return next(iter(sorted(model_dir().glob("*.pte"))), None)
