"""Where files are: those beside a model, and those that come with the package, kernels and the demo model."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folders(path: str | os.PathLike[str]) -> list[Path]:
    """Where to look for what belongs to a file: beside it, and where it is a link, then beside its target."""
    return list(dict.fromkeys((Path(path).absolute().parent, Path(path).resolve().parent)))


def beside(path: str | os.PathLike[str], name: str) -> Path | None:
    """The file of this name there."""
    return next((found for folder in folders(path) if (found := folder / name).is_file()), None)


def wgsl_dir() -> Path:
    """The kernels: inside an installed package, beside the package in a checkout."""
    inside = _PACKAGE / "wgsl"
    return inside if inside.is_dir() else _PACKAGE.parent / "wgsl"


def model_dir() -> Path:
    """The bundled model and its tokenizer."""
    return _PACKAGE / "bundled"


def bundled_model() -> Path | None:
    """The demo model, where there is one."""
    return next(iter(sorted(model_dir().glob("*.pte"))), None)
