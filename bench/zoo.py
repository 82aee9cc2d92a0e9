"""Exports many small models with ExecuTorch's VulkanPartitioner, runs them here, and compares with PyTorch.

    et/bin/python bench/zoo.py export [NAME ...]     # needs torch, executorch, transformers: writes zoo/NAME/
    python bench/zoo.py run [NAME ...]               # needs webgpu-run only
    python bench/zoo.py time [NAME ...]              # the command, for those that are right; --budget SECONDS of them
    python bench/zoo.py table docs/zoo.md            # the table of that page
    python bench/zoo.py fixtures                     # the small ones that the tests use

`export resnet18_224 vit_s_224` also writes .onnx files, for bench/next_to_onnx.py. `--out DIR` is where the models go
(default: zoo). `export --minilm FOLDER` adds MiniLM with its real weights. An export gets 180 s
(`--limit`). Every model is run at every live shape, in one session, then the first shape again.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LIMIT_S = 180
FIXTURES = """
aspp autoencoder bert_dyn detector dilated_conv1d embedding_4bit_dyn gpt2_dyn graph_attention gru lenet linears_8da8w
linears_8w_groups linears_q8_dynamic llama_dyn mixtral mlp_dyn_batch mobilenet_v3_dyn_hw numbers_dyn patches
qwen2_8da4w_dyn resnet_dyn_hw resnet_fp16 resnet_q8 rounded_cache_dyn shufflenet super_resolution unet_transposed
vae_decoder vit
"""


def export_one(name: str, folder: Path) -> dict[str, Any]:
    """Export a model into a folder: model.pte, calls.npz with inputs and PyTorch's outputs, about.json."""
    import torch
    import zoo_models
    import zoo_nets
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import to_edge_transform_and_lower

    about: dict[str, Any] = {"name": name, "stage": "build"}
    start = time.perf_counter()
    try:
        torch.manual_seed(sum(map(ord, name)))
        with torch.no_grad():
            entry = (zoo_models.ZOO | zoo_models.BIG)[name]()
            if not entry.is_initialized:
                zoo_nets.initialize(entry.model)
                entry.model.eval()
            about |= {"stage": "eager", "tolerance": entry.tolerance, "dynamic": entry.dynamic is not None}
            arrays = {}
            for c, call in enumerate(entry.calls):
                made = entry.model(*call)
                for kind, tensors in (("in", call), ("out", made if isinstance(made, tuple | list) else (made,))):
                    arrays |= {f"{kind}_{c}_{i}": np.asarray(t) for i, t in enumerate(tensors)}
            np.savez_compressed(folder / "calls.npz", **arrays)
            if name in zoo_models.BIG:
                torch.onnx.export(entry.model, entry.calls[0], folder / "model.onnx", dynamo=False)
            about["stage"] = "torch.export"
            program = torch.export.export(entry.model, entry.calls[0], dynamic_shapes=entry.dynamic)
            about["stage"] = "lower"
            options = entry.options | ({"require_dynamic_shapes": True} if entry.dynamic is not None else {})
            edge = to_edge_transform_and_lower(program, partitioner=[VulkanPartitioner(options)])
            about["stage"] = "to_executorch"
            with open(folder / "model.pte", "wb") as file:
                edge.to_executorch().write_to_file(file)
            about["stage"] = "done"
    except BaseException as error:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        about |= {"error": f"{type(cause).__name__}: {cause}"[:600], "trace": traceback.format_exc()[-2000:]}
    about["seconds"] = round(time.perf_counter() - start, 1)
    (folder / "about.json").write_text(json.dumps(about, indent=1))
    return about


def export(names: list[str], out: Path, minilm: str | None, limit: float) -> None:
    """Each model in a child of its own, because the exporter keeps state and may hang."""
    import logging
    import warnings

    sys.path.insert(0, str(HERE))
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import executorch.backends.vulkan.partitioner.vulkan_partitioner  # noqa: F401
    import executorch.backends.vulkan.patterns as patterns
    import torch
    import transformers
    import zoo_models
    import zoo_more  # noqa: F401
    import zoo_tasks  # noqa: F401
    from torch._export.verifier import Verifier

    if minilm:
        zoo_models.sentences(minilm)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # the exporter refuses the fused encoder layer
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    for pattern in patterns.fusable_patterns.values():  # the exporter makes these again for every model
        if pattern.get_graphs_fn is not None:
            pattern.get_graphs_fn = functools.cache(pattern.get_graphs_fn)
            pattern.get_graphs_fn()
    Verifier.check = lambda self, program: None  # checks only; half of the time of an export
    with tempfile.TemporaryDirectory() as folder:
        export_one("mlp_dyn_batch", Path(folder))  # fills the caches of torch before the first fork
    for name in names or list(zoo_models.ZOO):
        folder = out / name
        if (folder / "about.json").exists() and not names:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            with open(folder / "log.txt", "w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                export_one(name, folder)
            os._exit(0)
        end = time.monotonic() + limit
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                late = {"name": name, "stage": "timeout", "error": f"no export within {limit:g} s"}
                (folder / "about.json").write_text(json.dumps(late))
                break
            time.sleep(0.1)
        about = json.loads((folder / "about.json").read_text())
        print(
            f"{name:24} {about['stage']:14} {about.get('seconds', limit):6.1f} s  {about.get('error', '')[:120]}",
            flush=True,
        )


def error_of(got: list[Any], wanted: list[Any]) -> tuple[float, str]:
    """The largest error of all outputs relative to their range, and what else is wrong."""
    worst = 0.0
    if len(got) != len(wanted):
        return np.inf, f"{len(got)} outputs, expected {len(wanted)}"
    for a, b in zip(map(np.asarray, got), wanted, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return np.inf, f"{a.dtype} {list(a.shape)}, expected {b.dtype} {list(b.shape)}"
        if not a.size:
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        if np.isnan(a).any() != np.isnan(b).any():
            return np.inf, "NaN"
        worst = max(worst, float(np.nanmax(np.abs(a - b)) / max(np.nanmax(np.abs(b)), 1e-12)))
    return worst, ""


def calls_of(path: Path) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and outputs of every call, by the names in_CALL_N and out_CALL_N."""
    data = np.load(path)
    count = 1 + max(int(name.split("_")[1]) for name in data.files)
    of = lambda kind, c: [data[f"{kind}_{c}_{i}"] for i in range(sum(n.startswith(f"{kind}_{c}_") for n in data.files))]  # noqa: E731
    return [(of("in", c), of("out", c)) for c in range(count)]


def session(folder: Path, device: Any = None) -> dict[str, Any]:
    """Load a model once and make all calls; what went wrong, if anything did."""
    sys.path.insert(0, str(ROOT))
    import webgpu_run

    calls, errors, problem = calls_of(folder / "calls.npz"), [], ""
    try:
        model = webgpu_run.load(str(folder / "model.pte"), device=device)
        for k, (inputs, wanted) in enumerate([*calls, *calls[:1]]):
            worst, problem = error_of(model.run(inputs), wanted)
            errors.append(worst)
            if problem:
                problem = f"call {k}: {problem}"
                break
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    cosine = 0.0
    if not problem and folder.name.startswith("minilm"):
        pairs = [(np.asarray(model.run(i)[0], np.float64), w[0].astype(np.float64)) for i, w in calls]
        cosine = min(float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())) for a, b in pairs)
    return {"errors": errors, "problem": problem, "cosine": cosine}


def command_seconds(folder: Path) -> tuple[float, float]:
    """Wall and CPU time from the start of the command to its output, when the driver's cache has the kernels."""
    inputs = calls_of(folder / "calls.npz")[0][0]
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    command = [sys.executable, "-m", "webgpu_run", str(folder / "model.pte"), "--output", str(work / "out"), "--quiet"]
    for i, array in enumerate(a for a in inputs if a.ndim):  # numbers are fixed by the exporter
        np.save(work / f"{i}.npy", array)
        command += ["--input", str(work / f"{i}.npy")]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(work)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(seconds, 2), round(used, 2)


def run(names: list[str], out: Path) -> None:
    """Run every exported model in this process. Times that were measured before are kept."""
    sys.path.insert(0, str(ROOT))
    from webgpu_run.runtime.open import open_device

    device = open_device()
    for folder in sorted(p.parent for p in out.glob("*/about.json")):
        about = json.loads((folder / "about.json").read_text())
        if about["stage"] != "done" or (names and folder.name not in names):
            continue
        result = session(folder, device)
        worst = max(result["errors"], default=np.inf)
        if not result["problem"] and worst > about["tolerance"]:
            result["problem"] = f"differs by {worst:.1e} of the range"
        result |= {"is_right": not result["problem"], "seconds": None, "cpu": None}
        if result["is_right"] and (folder / "result.json").exists():
            before = json.loads((folder / "result.json").read_text())
            result |= {name: before[name] for name in ("seconds", "cpu")}
        (folder / "result.json").write_text(json.dumps(result))
        print(f"{folder.name:24} {worst:8.1e}  {result['problem'][:160]}", flush=True)


def time_commands(names: list[str], out: Path, budget: float) -> None:
    """Time the command for models that are right: those that are named, else those without a time.

    `run` has compiled their kernels: the driver keeps them on disk.
    """
    end, waiting = time.monotonic() + budget, []
    for path in sorted(out.glob("*/result.json")):
        result = json.loads(path.read_text())
        if result["is_right"] and (path.parent.name in names if names else result["seconds"] is None):
            waiting.append((path, result))
    for k, (path, result) in enumerate(waiting):
        if time.monotonic() > end:
            print(f"{len(waiting) - k} models are left")
            return
        result["seconds"], result["cpu"] = command_seconds(path.parent)
        path.write_text(json.dumps(result))
        print(f"{path.parent.name:24} {result['seconds']:6.2f} s, {result['cpu']:6.2f} s of CPU time", flush=True)


def content(path: Path) -> str:
    """How many ops a file has on the device and on the CPU."""
    sys.path.insert(0, str(ROOT))
    from webgpu_run.errors import RunError
    from webgpu_run.formats import pte

    try:
        method = pte.load(path).method()
    except RunError:  # the reason is below the table
        return " | "
    graphs = [d.graph for d in method.delegates if d.graph]
    kernels = [s for s in method.instructions if isinstance(s, pte.KernelCall)]
    return f"{sum(len(g.chain) for g in graphs)} in {len(graphs)} | {len(kernels)}"


def spread(seconds: list[float]) -> str:
    return f"{min(seconds, default=0):.1f} to {max(seconds, default=0):.1f}"


def table(page: Path, out: Path) -> None:
    """Replace the part of a page between `<!-- zoo -->` and `<!-- end -->`."""
    rows, failed, refused, times, walls, right = [], [], [], [], [], 0
    for folder in sorted(p.parent for p in out.glob("*/about.json")):
        about = json.loads((folder / "about.json").read_text())
        if about["stage"] == "done" and not (folder / "result.json").exists():
            continue  # it was not run
        if about["stage"] != "done":
            error = re.sub(r"\s+", " ", about.get("error", "")).replace("|", "/")[:160]
            refused.append(f"| {folder.name} | {about['stage']} | {error} |")
            continue
        result = json.loads((folder / "result.json").read_text())
        shapes = len(calls_of(folder / "calls.npz"))
        size = f"{(folder / 'model.pte').stat().st_size / 1e3:.0f}"
        worst = f"{max(result['errors']):.1e}" if result["errors"] else ""
        is_right = "yes" if result["is_right"] else "no"
        seconds = " | " if result["seconds"] is None else f"{result['seconds']:.1f} | {result['cpu']:.1f}"
        row = (
            folder.name,
            size,
            content(folder / "model.pte"),
            shapes,
            f"{about['tolerance']:g}",
            worst,
            seconds,
            is_right,
        )
        rows.append(f"| {' | '.join(map(str, row))} |")
        if result["seconds"] is not None:
            times.append(result["cpu"])
            walls.append(result["seconds"])
        if result["is_right"]:
            right += 1
        else:
            problem = result["problem"].replace("|", "/")
            failed.append(f"- `{folder.name}`: {problem}")
    cosines = [
        f"`{p.parent.name}` {json.loads(p.read_text())['cosine']:.8f}" for p in sorted(out.glob("minilm*/result.json"))
    ]
    lines = [
        f"{len(rows)} of {len(rows) + len(refused)} models export, and {right} of these {len(rows)} are right at every",
        "shape.",
        f"{len(times)} were timed: from start to output the command needs {spread(walls)} s, or {spread(times)} s of",
        f"CPU time, once the kernels are compiled, on {platform.machine()} with {os.cpu_count()} cores.",
        "",
        "| model | kB | ops in delegates | CPU kernels | shapes | tolerance | largest error | s | CPU s | right |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
        *rows,
        "",
        *(["Not right or refused:", "", *failed, ""] if failed else ["No exported file is wrong or refused.", ""]),
        *(
            [f"Smallest cosine similarity of MiniLM's sentence embeddings to PyTorch's: {', '.join(cosines)}.", ""]
            if cosines
            else []
        ),
        *(
            ["Not exported:", "", "| model | stage | error of the exporter |", "|---|---|---|", *refused, ""]
            if refused
            else []
        ),
    ]
    text = page.read_text()
    head, rest = text.split("<!-- zoo -->\n", 1)
    page.write_text(head + "<!-- zoo -->\n" + "\n".join(lines) + "<!-- end -->" + rest.split("<!-- end -->", 1)[1])


def fixtures(out: Path) -> None:
    target = ROOT / "tests" / "fixtures" / "zoo"
    target.mkdir(exist_ok=True)
    for name in FIXTURES.split():
        shutil.copy(out / name / "model.pte", target / f"{name}.pte")
        tolerance = json.loads((out / name / "about.json").read_text())["tolerance"]
        np.savez_compressed(target / f"{name}.npz", tolerance=tolerance, **np.load(out / name / "calls.npz"))
    print(f"{len(FIXTURES.split())} models, {sum(p.stat().st_size for p in target.iterdir()) / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("export", "run", "time", "table", "fixtures"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("zoo"))
    parser.add_argument("--minilm", metavar="FOLDER")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all timings")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one export")
    args = parser.parse_intermixed_args()
    if args.what == "export":
        export(args.names, args.out, args.minilm, args.limit)
    elif args.what == "run":
        run(args.names, args.out)
    elif args.what == "time":
        time_commands(args.names, args.out, args.budget)
    elif args.what == "table":
        table(Path(args.names[0]), args.out)
    else:
        fixtures(args.out)


if __name__ == "__main__":
    main()
