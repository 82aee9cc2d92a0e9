"""Run and measure ExecuTorch .pte models on any GPU, through WebGPU.

model = webgpu_run.load("model.pte")
logits, = model.run([tokens, position])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import CheckError, DeviceError, FormatError, RunError, ShapeError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from .model import Model as Model
    from .model import load as load

__version__ = "0.1.0"
__all__ = [
    "CheckError",
    "DeviceError",
    "FormatError",
    "Model",
    "RunError",
    "ShapeError",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """`load` and `Model`, imported when they are first asked for: `--help` must not pay for numpy and wgpu."""
    if name in ("Model", "load"):
        from . import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
