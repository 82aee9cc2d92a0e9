#!/usr/bin/env python3
"""Compile every shader module of the tests with the compilers of other WebGPU hosts; no adapter is needed.

    python tests/tools/compile_modules.py [MODEL.pte ...] [--packages DIR/node_modules]

Tint (Chrome, Edge, Node) and naga (Firefox and wgpu; here to Metal and Direct3D) compile the modules of all profiles:
of the fixtures, the bundled model, the given files, a Llama of 1B parameters, and every op case. They come from npm:
`npm install webgpu@0.6.2 naga-wasm@30.1.0` in any folder; $NODE_PACKAGES names its node_modules. Where node or the
packages are missing, one line says that nothing was compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from webgpu_run.debug.kernels import PROFILES, Module  # noqa: E402

from helpers.modules import of_cases, of_models  # noqa: E402


def collect(paths: list[Path]) -> dict[str, Module]:
    """All modules by id, and a line on stdout per profile."""
    found: dict[str, Module] = {}
    for profile, limits in PROFILES.items():
        models = {m.id: m for m in of_models(profile, paths)}
        cases = {m.id: m for m in of_cases(limits)}
        print(f"{profile:20} {len(models):5} modules of models, {len(cases):5} of op cases", flush=True)
        found |= models | cases
    return found


def compile_all(found: dict[str, Module], packages: Path) -> int:
    """1 if a compiler refused a module; its first message is printed."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "modules.jsonl"
        source.write_text("".join(f"{m.to_json()}\n" for m in found.values()))
        node = ("node", HERE / "compile_modules.mjs", packages, source)
        done = subprocess.run(node, capture_output=True, text=True)
    if done.returncode:
        print(f"node failed:\n{done.stderr}")
        return 1
    compiled = 0
    for line in map(json.loads, done.stdout.splitlines()):
        if "error" in line:
            message = next(filter(None, line["error"].splitlines()))
            print(f"{line['compiler']} refuses {found[line['id']].kernel} ({found[line['id']].uses[0]}): {message}")
        else:
            compiled += line["compiled"]
            print(f"{line['compiler']}: {line['compiled']} of {len(found)} modules compile")
    return int(compiled != 2 * len(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--packages", type=Path, default=Path(os.environ.get("NODE_PACKAGES", "node_modules")))
    args = parser.parse_args()
    if not shutil.which("node") or not all((args.packages / name).is_dir() for name in ("webgpu", "naga-wasm")):
        print("skipped: compiling with Tint and naga needs node and the npm packages webgpu and naga-wasm")
        return 0
    return compile_all(collect(args.models), args.packages)


if __name__ == "__main__":
    sys.exit(main())
