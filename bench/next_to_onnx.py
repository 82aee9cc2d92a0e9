"""Times a model here and in onnxruntime on the CPU, with calls that alternate, and prints the ratio of the medians.

    python bench/next_to_onnx.py zoo/resnet18_224 zoo/vit_s_224 [--calls 15]

A folder has model.pte, model.onnx and calls.npz, as `bench/zoo.py export resnet18_224` writes them. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import webgpu_run


def milliseconds(call: Callable[..., object], *args: object) -> float:
    start = time.perf_counter()
    call(*args)
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--calls", type=int, default=15)
    args = parser.parse_args()
    print(f"onnxruntime {onnxruntime.__version__} with {os.cpu_count()} threads")
    for folder in args.folders:
        data = np.load(folder / "calls.npz")
        x, wanted = data["in_0_0"], data["out_0_0"]
        model = webgpu_run.load(str(folder / "model.pte"))
        other = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        given = {other.get_inputs()[0].name: x}
        for name, result in (("ours", model.run([x])[0]), ("onnxruntime", other.run(None, given)[0])):
            error = float(np.abs(np.asarray(result) - wanted).max() / np.abs(wanted).max())
            if error > 1e-4:
                raise SystemExit(f"{folder.name}: {name} is off by {error:.1e} of the range")
        times: dict[str, list[float]] = {"ours": [], "onnxruntime": []}
        for _ in range(args.calls):
            times["ours"].append(milliseconds(model.run, [x]))
            times["onnxruntime"].append(milliseconds(other.run, None, given))
        ours, theirs = (statistics.median(times[name]) for name in ("ours", "onnxruntime"))
        print(f"{folder.name:16} ours {ours:8.1f} ms   onnxruntime {theirs:8.1f} ms   ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
