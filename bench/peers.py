"""Compares our 4-bit linear with onnxruntime's MatMulNBits and numpy, at the same shapes, in one run.

    pip install onnxruntime onnx                       # into the environment of webgpu-run
    python bench/peers.py --out bench/results/peers.jsonl
    python bench/peers.py --webgpu-python VENV/bin/python    # also onnxruntime-webgpu, from its own environment

Peers alternate, repeat by repeat, so that whatever disturbs the machine disturbs all of them. Every output is compared
with a float64 product, and a peer whose output is wrong gets no time. On a shared machine, look at the ratios of one
run rather than at times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GROUP = 32
SHAPES = ((576, 576), (576, 1536), (1536, 576), (576, 49152), (2048, 2048))  # K, N: SmolLM2-135M's, and a larger one
ROWS = (1, 16, 128)
TOLERANCE = {"f32": 1e-4, "int8 activations": 3e-2}

Array = np.ndarray[Any, np.dtype[Any]]
Once = Callable[[], tuple[float, Array]]  # seconds, output


def data(m: int, k: int, n: int) -> tuple[Array, Array, Array]:
    """x [M, K]; 4-bit weights [N, K/2], the even one in the low nibble; scales [N, K/32]."""
    rng = np.random.default_rng(m * 1_000_003 + k * 1009 + n)
    x = rng.standard_normal((m, k), np.float32)
    w = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
    return x, w, rng.uniform(0.5, 1.5, (n, k // GROUP)).astype(np.float32) / np.float32(4 * k**0.5)


def dense(w: Array, scales: Array) -> Array:
    """The weight in float32: exact, a 4-bit value times a scale."""
    out = np.empty((w.shape[0], w.shape[1] * 2), np.float32)
    out[:, 0::2], out[:, 1::2] = (w & 15), (w >> 4)
    return (out - 8) * np.repeat(scales, GROUP, 1)


def with_numpy(x: Array, w: Array, scales: Array) -> Once:
    """numpy has no 4-bit weights: it multiplies by the dense float32 matrix, eight times the bytes."""
    full = np.ascontiguousarray(dense(w, scales).T)

    def once() -> tuple[float, Array]:
        start = time.perf_counter()
        y = x @ full
        return time.perf_counter() - start, y

    return once


def with_onnxruntime(x: Array, w: Array, scales: Array, provider: str, accuracy: int) -> Once:
    """MatMulNBits with 4 bits, blocks of 32 and the default zero point, which is ours."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    (m, k), n = x.shape, w.shape[0]
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "scales"], ["y"], domain="com.microsoft", K=k, N=n, bits=4, block_size=GROUP,
        accuracy_level=accuracy,
    )  # fmt: skip
    weights = [
        helper.make_tensor("w", TensorProto.UINT8, (n, k // GROUP, GROUP // 2), w.tobytes(), raw=True),
        helper.make_tensor("scales", TensorProto.FLOAT, (n * k // GROUP,), scales.tobytes(), raw=True),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (m, d)) for name, d in (("x", k), ("y", n))]
    graph = helper.make_graph([node], "linear", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider])
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"{provider} found no adapter")

    def once() -> tuple[float, Array]:
        start = time.perf_counter()
        y = session.run(["y"], {"x": x})[0]
        return time.perf_counter() - start, y

    return once


def with_ours(device: Any, x: Array, w: Array, scales: Array) -> tuple[Once, Once, str]:
    """Our wall time (upload, dispatch, readback), our GPU time, and the route."""
    from webgpu_run.debug.single_op import Builder
    from webgpu_run.gpu.callstats import CallStats

    (m, k), n = x.shape, w.shape[0]
    b = Builder()
    ref = b.input((1, m, k))
    table = b.constant(np.ascontiguousarray(scales.T))
    b.output(b.call("et_vk.linear_q4gsw.default", ref, b.constant(w), table, GROUP, None, out=(1, m, n)))
    runner = b.runner(device)
    given = [x[None]]

    def wall() -> tuple[float, Array]:
        start = time.perf_counter()
        y = runner.call(given, CallStats())[0][0]
        return time.perf_counter() - start, y

    def gpu() -> tuple[float, Array]:
        stats = CallStats()
        y = runner.call(given, stats, timed=True)[0][0]
        return stats.gpu_ns / 1e9, y

    wall()
    return wall, gpu, runner.engine.plans[-1].route


def error(y: Array, want: Array) -> float:
    return float(np.abs(y - want).max() / np.abs(want).max())


def child(args: argparse.Namespace) -> None:
    """The same shapes in an environment that has onnxruntime-webgpu; one JSON object on stdout."""
    found: dict[str, Any] = {}
    for k, n in SHAPES:
        for m in ROWS:
            x, w, scales = data(m, k, n)
            name = f"{m}x{k}x{n}"
            try:
                once = with_onnxruntime(x, w, scales, "WebGpuExecutionProvider", 1)
                off = error(once()[1], x.astype(np.float64) @ dense(w, scales).T)
                good = off < TOLERANCE["f32"]
                found[name] = {"error": off, "seconds": [once()[0] for _ in range(args.repeat)] if good else None}
            except Exception as problem:  # any failure is a result
                found[name] = {"problem": " ".join(str(problem).split())[:200]}
    print(json.dumps(found))


def webgpu_peer(args: argparse.Namespace) -> dict[str, Any]:
    if not args.webgpu_python:
        return {}
    command = [args.webgpu_python, __file__, "--child", "--repeat", str(args.repeat)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    lines = done.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        return {f"{m}x{k}x{n}": {"problem": last[:200]} for k, n in SHAPES for m in ROWS}


def measure(args: argparse.Namespace) -> None:
    """Measure every shape; each result is printed and written at once."""
    from webgpu_run.bench.rows import facts, summary
    from webgpu_run.bench.stats import ratio
    from webgpu_run.gpu.device import open_device

    device = open_device(args.device)
    shared, elsewhere = facts(device), webgpu_peer(args)
    rows: list[dict[str, Any]] = []
    for k, n in SHAPES:
        for m in ROWS:
            x, w, scales = data(m, k, n)
            want = x.astype(np.float64) @ dense(w, scales).T
            wall, gpu, route = with_ours(device, x, w, scales)
            peers: dict[str, tuple[Once, str]] = {"ours": (wall, "f32"), "numpy": (with_numpy(x, w, scales), "f32")}
            if device.timestamps:
                peers["ours, GPU time"] = (gpu, "f32")
            for name, level, precision in (("f32", 1, "f32"), ("int8", 4, "int8 activations")):
                try:
                    once = with_onnxruntime(x, w, scales, "CPUExecutionProvider", level)
                    peers[f"onnxruntime CPU, {name}"] = (once, precision)
                except ImportError:
                    print("onnxruntime or onnx is not installed, so it is not measured", file=sys.stderr)
            samples: dict[str, list[float]] = {name: [] for name in peers}
            errors = {name: error(once()[1], want) for name, (once, _) in peers.items()}
            wrong = [name for name, off in errors.items() if not off < TOLERANCE[peers[name][1]]]
            if wrong:
                sys.exit(f"{m}×{k}×{n}: the output of {', '.join(wrong)} is wrong ({errors})")
            for _ in range(args.repeat):
                for name, (once, _) in peers.items():
                    samples[name].append(once()[0] * 1e6)
            other = elsewhere.get(f"{m}x{k}x{n}")
            if other and other.get("seconds"):
                samples["onnxruntime WebGPU, f32"] = [s * 1e6 for s in other["seconds"]]
                errors["onnxruntime WebGPU, f32"] = other["error"]
            for name, times in samples.items():
                against = ratio(samples["ours"], times)
                rows.append({
                    "schema": 1, "time": shared["time"], "kind": "peer", "test": f"linear {m}×{k}×{n} {name}",
                    "m": m, "k": k, "n": n, "peer": name, "route": route if name.startswith("ours") else None,
                    "unit": "µs", "better": "lower", **summary(times), "error": errors[name], "correct": True,
                    "times_ours": against.value, "times_ours_ci95": against.interval,
                    **{key: shared[key] for key in ("device", "machine", "versions")},
                })  # fmt: skip
            if other and not other.get("seconds"):
                rows.append({
                    "schema": 1, "kind": "peer", "test": f"linear {m}×{k}×{n} onnxruntime WebGPU",
                    "m": m, "k": k, "n": n, "peer": "onnxruntime WebGPU, f32", "correct": False,
                    "error": other.get("error"),
                    "problem": other.get("problem", "its output is wrong"),
                })  # fmt: skip
            show([r for r in rows if (r["m"], r["k"], r["n"]) == (m, k, n)])
            if args.out:
                args.out.write_text(
                    "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
                )


def show(rows: list[dict[str, Any]]) -> None:
    first = rows[0]
    print(f"{first['m']}×{first['k']}×{first['n']} ({first['route']})")
    for row in rows:
        if "samples" in row:
            times = f"{statistics.median(row['samples']):12,.0f} µs {row['times_ours']:8.2f}× ours"
            print(f"  {row['peer']:28}{times}  error {row['error']:.0e}", flush=True)
        else:
            print(f"  {row['peer']:28}not measured: {row['problem']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON lines")
    parser.add_argument("--device", help="as for webgpu-run")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--webgpu-python", help="a Python that has onnxruntime-webgpu, onnx and numpy")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    measure(args)


if __name__ == "__main__":
    main()
