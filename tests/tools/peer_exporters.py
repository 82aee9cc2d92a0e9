"""The exporters of ExecuTorch's native tests, as its wheel has them, and which of them have run."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.backends.webgpu.test import ops as suites

CALLED: set[str] = set()  # exporters of the wheel that have run
EXPORTED: list[tuple[Any, Sequence[Any]]] = []  # modules and inputs that torch.export was given


def exporters() -> dict[str, Callable[..., None]]:
    """Every exporter of a native test that the wheel has, by module and name."""
    found = {}
    root = Path(suites.__path__[0])
    for path in sorted(root.rglob("test_*.py")):
        short = ".".join(path.relative_to(root).with_suffix("").parts)
        module = importlib.import_module(f"{suites.__name__}.{short}")
        for name, value in vars(module).items():
            if name.startswith("export_") and inspect.isfunction(value) and value.__module__ == module.__name__:
                found[f"{short}.{name}"] = value
    return found


def watch_exporters() -> None:
    """Have every exporter and torch.export note their calls."""

    def noted(key: str, function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def call(*args: Any, **kw: Any) -> None:
            CALLED.add(key)
            function(*args, **kw)

        return call

    for key, function in exporters().items():
        setattr(sys.modules[function.__module__], function.__name__, noted(key, function))
    export = torch.export.export

    def recorded(module: Any, args: Sequence[Any], *rest: Any, **kw: Any) -> Any:
        EXPORTED.append((module, args))
        return export(module, args, *rest, **kw)

    torch.export.export = recorded
