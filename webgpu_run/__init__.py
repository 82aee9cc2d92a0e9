"""Run and measure ExecuTorch .pte models on any GPU, through WebGPU.

Language models:

    llm = webgpu_run.LLM("model.pte")  # without a path: the bundled model
    for piece in llm.generate("Once upon a time", max_new_tokens=64):
        print(piece, end="")

Any model, with numpy arrays:

    model = webgpu_run.load("model.pte")
    (logits,) = model.run([tokens, position])

Every error is a `RunError`.
"""

from __future__ import annotations

from .errors import CheckError, DeviceError, FormatError, RunError, ShapeError, UnsupportedError, UsageError
from .version import __version__

TYPE_CHECKING = False  # as in typing, whose import would delay every command
if TYPE_CHECKING:
    from typing import Any

    from .llm.language_model import LLM as LLM
    from .llm.reply import Reply as Reply
    from .runtime.model import Model as Model
    from .runtime.open import load as load

__all__ = [
    "LLM",
    "CheckError",
    "DeviceError",
    "FormatError",
    "Model",
    "Reply",
    "RunError",
    "ShapeError",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "load",
]

# Imported when they are first asked for: `--help` must not pay for numpy and wgpu.
_LAZY = {"LLM": ".llm.language_model", "Reply": ".llm.reply", "Model": ".runtime.model", "load": ".runtime.open"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_LAZY[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
