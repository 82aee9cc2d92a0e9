"""`--kernels`: the shader modules of a model, one JSON object per line."""

from __future__ import annotations

import sys
from dataclasses import replace

from ..console import outfile
from ..debug.kernels import PROFILES, modules
from ..formats.pte import Program
from .options import Settings


def write_kernels(program: Program, settings: Settings, target: str, profile: str) -> None:
    """Write the modules that a profile's plans use to a file, or to stdout if the target is `-`."""
    if target != "-":
        outfile.check_target(target, [settings.model, *settings.data], "--kernels")
    limits = replace(PROFILES[profile], kv="f16" if settings.kv == "f16" else "f32")
    lines = [m.to_json() for m in modules(program.method(settings.method), limits, fuse=not settings.no_fuse)]
    text = "".join(f"{line}\n" for line in lines)
    if target == "-":
        sys.stdout.write(text)
    else:
        outfile.write(target, text.encode())
