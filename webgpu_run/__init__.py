"""Run and measure ExecuTorch .pte models on any GPU, through WebGPU.

model = webgpu_run.load("model.pte")
logits, = model.run([tokens, position])
"""

from __future__ import annotations

from .errors import CheckError, DeviceError, FormatError, RunError, ShapeError, UnsupportedError, UsageError
from .version import __version__

TYPE_CHECKING = False  # as in typing, whose import would delay every command
if TYPE_CHECKING:
    from typing import Any

    from .runtime.model import Model as Model
    from .runtime.open import load as load

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
    if name == "Model":
        from .runtime.model import Model

        return Model
    if name == "load":
        from .runtime.open import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
