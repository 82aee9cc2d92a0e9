"""Where files are: those beside a model, and those that come with the package, kernels and the demo model."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from pathlib import Path

from .errors import FormatError

# The next step for somebody who has a model in another format.
EXPORT_HINT = "examples/export makes a .pte from it: python examples/export/export.py {model} OUT"

_PACKAGE = Path(__file__).resolve().parent


def folders(path: str | os.PathLike[str]) -> list[Path]:
    """Where to look for what belongs to a file: beside it, and where it is a link, then beside its target."""
    return list(dict.fromkeys((Path(path).absolute().parent, Path(path).resolve().parent)))


def beside(path: str | os.PathLike[str], name: str) -> Path | None:
    """The file of this name there."""
    return next((found for folder in folders(path) if (found := folder / name).is_file()), None)


def model_file(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The model that a path names: the path itself, or the only .pte file in a folder."""
    if not os.path.exists(path):
        raise FormatError(f"cannot open: no such file or directory ({os.fspath(path)})", hint=_near(Path(path)))
    if not os.path.isdir(path):
        return path
    models = sorted(file for file in Path(path).glob("*.pte") if file.is_file())
    if len(models) == 1:
        return models[0]
    if models:
        names = ", ".join(file.name for file in models)
        raise FormatError(f"is a directory with {len(models)} models: {names} ({os.fspath(path)})", hint="name one")
    hint = None
    if (Path(path) / "config.json").is_file():
        hint = EXPORT_HINT.format(model=shlex.quote(os.fspath(path)))
    elif inside := sorted({str(file.parent) for file in Path(path).glob("*/*.pte")})[:3]:
        hint = f"did you mean {' or '.join(inside)}?"
    raise FormatError(f"is a directory without a .pte file ({os.fspath(path)})", hint=hint)


def _near(path: Path) -> str | None:
    """What was perhaps meant by a path that does not exist: a model with a similar name, a prompt, a name on a hub."""
    try:
        names = [f.name for f in path.parent.iterdir() if f.suffix == ".pte" or any(f.glob("*.pte"))]
    except OSError:
        names = []
    near = difflib.get_close_matches(path.name, names, 3) or difflib.get_close_matches(f"{path.name}.pte", names, 3)
    if near:
        return f"did you mean {' or '.join(str(path.with_name(name)) for name in near)}?"
    if " " in str(path) and not path.suffix:
        return "a prompt comes after the model, or after --prompt"
    if re.fullmatch(r"[\w.-]+/[\w.-]+|[\w.-]+:[\w.-]+", str(path)) and path.suffix != ".pte":
        return "models are not downloaded by name; examples/export/README.md says how to get one"
    return None


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
