#!/usr/bin/env python3
"""Run every kind of model file on this machine's adapter and print the table of docs/files.md, one row per kind."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from webgpu_run.gpu.device import open_device  # noqa: E402

from helpers.kinds import KINDS, golden, measure, open_kind  # noqa: E402


def main() -> None:
    device = open_device(sys.argv[1] if len(sys.argv) > 1 else None)
    print(f"On {device.name}:\n")
    print("| kind | fixture | tokens | largest logit difference | of the range | within 1e-5 | same best token |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name, kind in KINDS.items():
        found = measure(open_kind(name, device), golden(name))
        sizes = f"{found.tokens} | {found.difference:.1e} | {found.relative:.0e}"
        counts = f"{found.exact}/{found.calls} | {found.agree}/{found.rows}"
        print(f"| {kind.title} | `{name}` | {sizes} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
