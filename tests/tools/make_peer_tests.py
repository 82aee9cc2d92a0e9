#!/usr/bin/env python3
"""Make ExecuTorch's own tests of this backend into sets that `run_peer_tests.py` can run.

    python make_peer_tests.py ops OUT [OP ...]         its op tests (executorch.backends.webgpu.test.op_tests)
    python make_peer_tests.py calls OUT [GROUP ...]    the files of its native tests: dynamic shapes, caches, positions

`ops` takes every suite that the wheel registers. It leaves ExecuTorch's manifest and raw files as they are, case by
case, and can be stopped and started again.
`calls` runs the exporters behind the native C++ tests; what those tests rebuild for themselves (inputs, positions,
references) is taken from the same Python modules, and each program gets one `.npz` with its calls: `in_<call>_<n>`,
`out_<call>_<n>`. The group `single` runs every exporter of the wheel that no other group has run and that needs nothing
but paths; the module and the inputs that it hands to torch.export give the outputs.

Both write `left_out.json`: every case or exporter of the wheel that was not generated, and why. The table of
`run_peer_tests.py` lists them. `--heavy` also makes the cases of the size of Llama 3.2 1B.

Needs: pip install torch==2.13.0 executorch==1.5.1
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import logging
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import executorch.backends.vulkan.patterns as vulkan_patterns
import numpy as np
import torch
from executorch.backends.webgpu.test.op_tests.generate_op_tests import generate_case
from executorch.backends.webgpu.test.op_tests.test_suite import op_test_registry
from executorch.backends.webgpu.test.ops import (
    test_dispatch_order,
    test_embedding_q4gsw,
    test_prepack,
    test_quantized_linear,
    test_rope,
    test_rope_hf,
    test_sdpa,
    test_update_cache,
)
from executorch.backends.webgpu.test.ops.dynamic_shape import test_dynamic_shape_export as dynamic
from executorch.backends.webgpu.test.ops.index import test_index
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.schema import ScalarType
from peer_exporters import CALLED, EXPORTED, exporters, watch_exporters
from torch._export.verifier import Verifier

Calls = list[tuple[list[np.ndarray], list[np.ndarray]]]

# Names that the exporters give to a program's inputs and outputs, in the program's order.
LAYOUTS = [
    (("x", "q", "k", "v", "kc", "vc"), ("golden",)),
    (("q", "k", "v", "kc", "vc"), ("golden",)),
    (("xq", "xk", "fc", "fs"), ("gq", "gk")),
    (("self", "idx"), ("golden",)),
    (("idx",), ("golden",)),
    (("input",), ("golden",)),
    (("input",), ("q", "k", "v")),
]
# Tolerances of the native tests: element by element, quantized linears, attention.
PLAIN, QUANTIZED, ATTENTION = 1e-3, 5e-3, 1e-2
DTYPES = {ScalarType.FLOAT: "<f4", ScalarType.HALF: "<f2", ScalarType.LONG: "<i8", ScalarType.INT: "<i4"}


class Recorder:
    """Collects the cases of one group and writes their calls beside the programs."""

    def __init__(self, out: Path, group: str) -> None:
        self.out = out / group
        self.group = group
        self.entries: list[dict[str, Any]] = []
        self.out.mkdir(parents=True, exist_ok=True)

    def add(self, stem: str, calls: Calls, tolerance: float, *, required: bool = True) -> None:
        """One program and its calls, made in order on one instance."""
        record = {}
        for i, (inputs, outputs) in enumerate(calls):
            record |= {f"in_{i}_{n}": np.asarray(x) for n, x in enumerate(inputs)}
            record |= {f"out_{i}_{n}": np.asarray(x) for n, x in enumerate(outputs)}
        np.savez_compressed(self.out / f"{stem}.calls.npz", **record)
        files = {"pte": f"{self.group}/{stem}.pte", "calls": f"{self.group}/{stem}.calls.npz", "n_calls": len(calls)}
        numbers = {"atol": tolerance, "rtol": tolerance, "required": required}
        self.entries.append({"op": self.group, "case": stem, **files, **numbers})

    def add_files(self, tolerance: Callable[[str], float]) -> None:
        """Every program whose inputs and goldens the exporter wrote, one call a length, the first length once more."""
        for pte in sorted(self.out.glob("*.pte")):
            stem = pte.stem
            found = (re.fullmatch(re.escape(stem) + r"\.S(\d+)\..*", path.name) for path in self.out.glob(f"{stem}.S*"))
            lengths = sorted({int(match[1]) for match in found if match}, reverse=True)
            calls = []
            for length in [*lengths, *lengths[:1]] or [0]:
                base = f"{stem}.S{length}" if length else stem
                if call := self.read_call(pte, base, length):
                    calls.append(call)
            if calls:
                self.add(stem, calls, tolerance(stem))

    def read_call(self, pte: Path, base: str, length: int) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
        inputs, outputs = tensors(pte)
        for ins, outs in LAYOUTS:
            paths = [self.out / f"{base}.{name}.bin" for name in (*ins, *outs)]
            caches = 2 if ins[-1] == "vc" else 0
            if (len(ins), len(outs) + caches) != (len(inputs), len(outputs)) or not all(p.exists() for p in paths):
                continue
            read_all = [read(p, *t, length) for p, t in zip(paths, inputs + outputs[caches:], strict=True)]
            given, golden = read_all[: len(ins)], read_all[len(ins) :]
            return given, ([*written(given[-5:], 0), *golden] if caches else golden)
        return None


def tensors(pte: Path) -> tuple[list[tuple[list[int], str]], list[tuple[list[int], str]]]:
    """Largest shape and dtype of a program's inputs and outputs."""
    plan = deserialize_pte_binary(pte.read_bytes()).program.execution_plan[0]
    both = [[plan.values[i].val for i in ids] for ids in (plan.inputs, plan.outputs)]
    inputs, outputs = ([(list(t.sizes), DTYPES[t.scalar_type]) for t in values] for values in both)
    return inputs, outputs


def read(path: Path, sizes: Sequence[int], dtype: str, length: int) -> np.ndarray:
    """A raw file at its live shape: one dimension brought down to `length`, else the largest, else whatever fits."""
    data = path.read_bytes()
    kinds = ("<i8", "<i4") if dtype == "<i8" else (dtype,)
    shapes = [[*sizes[:i], length, *sizes[i + 1 :]] for i in range(len(sizes)) if length <= sizes[i]] + [list(sizes)]
    shapes += [[*sizes[:i], n, *sizes[i + 1 :]] for i in range(len(sizes)) for n in range(1, sizes[i]) if length]
    for shape in shapes:
        for kind in kinds:
            if math.prod(shape) * np.dtype(kind).itemsize == len(data):
                return np.frombuffer(data, kind).reshape(shape).astype(dtype)
    raise ValueError(f"{path.name}: {len(data)} bytes do not fit {list(sizes)} at length {length}")


def written(given: Sequence[np.ndarray], pos: int) -> list[np.ndarray]:
    """The caches after a call with these q, k, v and caches: programs that are given their caches return them first."""
    after = []
    for new, cache in zip(given[1:3], given[3:5], strict=True):
        after.append(cache.copy())
        after[-1][:, pos : pos + new.shape[1]] = new
    return after


def arrays(*values: torch.Tensor) -> list[np.ndarray]:
    return [value.detach().contiguous().numpy() for value in values]


def simple(r: Recorder) -> None:
    d, out = dynamic, str(r.out)
    length = torch.export.Dim("s", min=1, max=d.MAXS)
    example = (d._ramp((1, 1, d.MAXS, d.HIDDEN)),)
    modules = [d.RmsNormModule, d.RmsChainModule, d.RmsResidualModule, d.RmsMulModule]
    for module in [*(m(d.HIDDEN) for m in modules), d.SigmoidModule()]:
        name = "dyn_" + re.sub(r"(?<!^)(?=[A-Z])", "_", type(module).__name__.removesuffix("Module")).lower()
        d._export(module, example, {"x": {2: length}}, str(r.out / f"{name}.pte"))
        d._write_goldens(module, name, out, [d.MAXS, 64, 16, 8, 1])
    d._export(d.RmsNormModule(d.HIDDEN), (d._ramp((1, 1, 8, d.HIDDEN)),), None, str(r.out / "static_rms.pte"))
    d._write_goldens(d.RmsNormModule(d.HIDDEN), "static_rms", out, [8])
    d._export_dynamic_select(out)
    d.export_dynamic_conv1d_cases(out)
    r.add_files(lambda _: PLAIN)
    d.export_dynamic_expand_copy_rejection_case(out)  # programs that ExecuTorch's runtime must refuse
    models = {
        "dyn_expand_copy": d.DynamicExpandCopyModule,
        "dyn_expand_copy_inferred": d.DynamicExpandCopyInferredModule,
    }
    for stem, model in models.items():
        x = d._ramp((1, 8))
        r.add(stem, [(arrays(x), arrays(model()(x)))], PLAIN, required=False)


def linear(r: Recorder) -> None:
    d, out = dynamic, str(r.out)
    d.export_dynamic_fp32_linear_cases(out)
    d._export_dynamic_linear(out)
    for n, prefix in ((d.LIN_N, "dyn_linear_tiled"), (d.LIN_SHMEM_N, "dyn_linear_shmem")):
        d._export_dynamic_linear(out, n=n, prefix=prefix, k=d.LIN_ALT_K, group=d.LIN_ALT_GROUP)
    d._export_static_linear(out, 1, "static_linear_m1")
    d._export_static_linear(out, 32, "static_linear_m32")
    r.add_files(lambda stem: PLAIN if "fp32" in stem else QUANTIZED)


def qkv(r: Recorder) -> None:
    dynamic._export_dynamic_qkv_routes(str(r.out))
    r.add_files(lambda _: QUANTIZED)


def sdpa_dynamic(r: Recorder) -> None:
    d, out = dynamic, str(r.out)
    d._export_dynamic_sdpa(out)
    d._export_dynamic_sdpa_wide(out)
    d._export_static_sdpa(out, 1, "static_sdpa_s1")
    d._export_static_sdpa(out, 16, "static_sdpa_s16")
    d._export_combined_routes(out)
    r.add_files(lambda _: ATTENTION)


def sdpa(r: Recorder) -> None:
    """Attention with the cache as an input: fixed positions, a replayed sequence, a position given at run time."""
    t = test_sdpa
    for config in t.CONFIGS:
        stem = f"sdpa_{config.name}"
        t.export_sdpa_model(config, str(r.out / f"{stem}.pte"), str(r.out / f"{stem}.golden.bin"))
        given = t._det_inputs(config)
        golden = written(arrays(*given), config.input_pos) + arrays(t._golden(config, *given))
        r.add(stem, [(arrays(*given), golden)], ATTENTION)
    t.export_replay_sequences(str(r.out))
    t.export_dynamic_decode(str(r.out))
    t.export_incache_decode(str(r.out))
    for seq in t.REPLAY_SEQS:
        keys, values = (torch.zeros(1, seq.cmax, seq.hkv, seq.d) for _ in "kv")
        for step, pos, length, new in steps(seq, seq.seq_lens):
            config = t.SdpaConfig("", seq.hq, seq.hkv, seq.d, length, seq.cmax, pos, kv_f16=seq.kv_f16)
            inputs = arrays(*new, keys.clone(), values.clone())
            golden = written(inputs, pos) + arrays(t._golden(config, *new, keys, values))
            r.add(f"sdpa_{seq.name}_step{step}_S{length}_pos{pos}", [(inputs, golden)], ATTENTION)
            keys[0, pos : pos + length], values[0, pos : pos + length] = new[1][0], new[2][0]
    for seq in t.DYNAMIC_REPLAY_SEQS:
        keys, values = (torch.zeros(1, seq.cmax, seq.hkv, seq.d) for _ in "kv")
        given_cache: Calls = []
        own_cache: Calls = []
        for _, pos, length, new in steps(seq, [1] * t.DYN_DECODE_STEPS):
            config = t.SdpaConfig("", seq.hq, seq.hkv, seq.d, length, seq.cmax, pos)
            golden = arrays(t._golden(config, *new, keys, values))
            at = np.array([pos], np.int64)
            inputs = arrays(*new, keys.clone(), values.clone())
            given_cache.append(([*inputs, at], written(inputs, pos) + golden))
            own_cache.append(([*arrays(*new), at], golden))
            keys[0, pos : pos + length], values[0, pos : pos + length] = new[1][0], new[2][0]
        r.add(f"sdpa_dyn_{seq.name}", given_cache, ATTENTION)
        r.add(f"sdpa_incache_{seq.name}", own_cache, ATTENTION)


def steps(seq: Any, lengths: Iterable[int]) -> Iterable[tuple[int, int, int, tuple[torch.Tensor, ...]]]:
    """Number, position, length and new q, k, v of every step of a sequence."""
    pos = 0
    for step, length in enumerate(lengths):
        yield step, pos, length, test_sdpa._step_inputs(seq, step, length)
        pos += length


def rope(r: Recorder) -> None:
    out = str(r.out)
    dynamic._export_dynamic_rope(out)
    r.add_files(lambda _: PLAIN)
    for module, name in ((test_rope, "rope"), (test_rope_hf, "rope_hf")):
        for shape in module.SHAPES:
            stem = f"{name}_{shape.name}"
            goldens = [str(r.out / f"{stem}.{part}.golden.bin") for part in ("xq", "xk")]
            getattr(module, f"export_{name}_model")(str(r.out / f"{stem}.pte"), *goldens, shape.name)
            given = module._inputs(shape)
            r.add(stem, [(arrays(*given), arrays(*module._golden(*given)))], PLAIN)
    hf = test_rope_hf
    hf.export_rope_hf_dynamic(out)
    hf.export_rope_hf_dynamic_sequence(out)
    cases = {"rope_hf_dynamic": [(1, pos) for pos in hf.DYNAMIC_POSITIONS]}
    cases["rope_hf_dynamic_sequence"] = list(hf.DYNAMIC_SEQUENCE_CASES)
    for stem, places in cases.items():
        calls: Calls = []
        for length, pos in places:
            xq, xk, cos, sin, _ = hf._dynamic_inputs(length)
            golden = hf._dynamic_golden(xq, xk, cos, sin, pos)
            calls.append(([*arrays(xq, xk, cos, sin), np.array([pos], np.int64)], arrays(*golden)))
        r.add(stem, calls, PLAIN)


def embedding(r: Recorder) -> None:
    dynamic.export_dynamic_embedding_cases(str(r.out))
    r.add_files(lambda _: PLAIN)
    paths = [str(r.out / f"embedding_q4gsw.{end}") for end in ("pte", "golden.bin", "idx.bin")]
    test_embedding_q4gsw.export_embedding_q4gsw_model(*paths)
    if call := r.read_call(Path(paths[0]), "embedding_q4gsw", 0):
        r.add("embedding_q4gsw", [call], PLAIN)


def prepack(r: Recorder) -> None:
    models = {"": test_prepack._AddConst, "_two_const": test_prepack._AddTwoConst}
    models["_tied_const"] = test_prepack._AddTiedConst
    for suffix, model in models.items():
        stem = f"prepack{suffix}"
        export = getattr(test_prepack, f"export_{stem}_model")
        export(str(r.out / f"{stem}.pte"), str(r.out / f"{stem}.golden.bin"))
        given = test_prepack._inputs()
        r.add(stem, [(arrays(*given), arrays(model()(*given)))], PLAIN)


def update_cache(r: Recorder) -> None:
    """Writes into a cache; the native test works out the result for itself, exactly, and so does this."""
    t, out = test_update_cache, str(r.out)
    t.export_update_cache_cases(out)
    t.export_update_cache_replay(out)
    t.export_update_cache_negative(out)
    shapes = {name: (pos, (1, s, h, d), (1, cmax, h, d), "<f4") for name, s, h, d, cmax, pos in t._NATIVE_CASES}
    for name, h, d, lengths in t._REPLAY_SEQS:
        for step, s in enumerate(lengths):
            pos = sum(lengths[:step])
            shapes[f"{name}_step{step}_S{s}_pos{pos}"] = (pos, (1, s, h, d), (1, sum(lengths), h, d), "<f4")
    for name, value_shape, cache_shape, dtype in t._NEGATIVE_CASES:
        shapes[name] = (0, value_shape, cache_shape, "<f2" if dtype == torch.float16 else "<f4")
    for stem, (pos, value_shape, cache_shape, dtype) in shapes.items():
        value = (np.arange(math.prod(value_shape)) % 97 + 1).reshape(value_shape).astype(dtype)
        cache = (-(np.arange(math.prod(cache_shape)) % 89) - 1).reshape(cache_shape).astype(dtype)
        after = cache.copy()
        after[:, pos : pos + value_shape[1]] = value
        r.add(stem, [([value, cache], [after])], 0.0, required=not stem.startswith("neg_"))


def dispatch_order(r: Recorder) -> None:
    test_dispatch_order.export_dispatch_order_cases(str(r.out))
    r.add_files(lambda _: PLAIN)


def index(r: Recorder) -> None:
    test_index.export_all_index_models(str(r.out))
    r.add_files(lambda _: 0.0)


def quantized_linear(r: Recorder) -> None:
    """Linears of the sizes of Llama 3.2 1B, with one row and with 4,096."""
    t = test_quantized_linear
    t.export_all_quantized_linear_models(str(r.out))
    for config in t.CONFIGS:
        if (pte := r.out / f"q4gsw_{config.name}.pte").exists():
            golden = np.fromfile(pte.with_suffix(".golden.bin"), "<f4").reshape(config.m, config.n)
            r.add(pte.stem, [(arrays(t._ramp_input(config.m, config.k)), [golden])], QUANTIZED)


def output_suppression(r: Recorder) -> None:
    """Programs of which the native test discards outputs; here all of them are compared."""
    t = test_quantized_linear
    t.export_output_suppression_models(str(r.out))
    x = t._ramp_input(1, t.OUTPUT_SUPPRESSION_K)
    for name, _ in t._output_suppression_cases():
        _, outputs = tensors(r.out / f"{name}.pte")
        files = [r.out / f"{name}.output{i}.golden.bin" for i in range(len(outputs))]
        goldens = [np.fromfile(f, "<f4").reshape(dims) for f, (dims, _) in zip(files, outputs, strict=True)]
        r.add(name, [(arrays(x), goldens)], QUANTIZED)


def single(r: Recorder) -> None:
    """Exporters that write one or more programs to given paths, each with the example that it was exported with."""
    for name, exporter in exporters().items():
        parameters = [p.name for p in inspect.signature(exporter).parameters.values() if p.default is p.empty]
        if name in CALLED or name in REASONS or not all(p == "out_dir" or p.endswith("_path") for p in parameters):
            continue
        folder = r.out / name.replace(".", "_")
        folder.mkdir(exist_ok=True)
        endings = {"output_path": "pte", "pte_path": "pte"}
        paths = [folder if p == "out_dir" else folder / f"model.{endings.get(p, p)}" for p in parameters]
        EXPORTED.clear()
        exporter(*(str(path) for path in paths))
        programs = sorted(folder.glob("*.pte"), key=lambda path: path.stat().st_mtime_ns)
        if len(programs) != len(EXPORTED):
            raise ValueError(f"{name}: {len(programs)} programs, {len(EXPORTED)} calls of torch.export")
        for pte, (module, inputs) in zip(programs, EXPORTED, strict=True):
            with torch.no_grad():
                outputs = module(*inputs)
            given = [x for x in inputs if isinstance(x, torch.Tensor)]
            wanted = outputs if isinstance(outputs, tuple | list) else [outputs]
            stem = f"{folder.name}_{pte.stem}"
            pte.rename(r.out / f"{stem}.pte")
            r.add(stem, [(arrays(*given), arrays(*wanted))], PLAIN)


GROUPS: dict[str, Callable[[Recorder], None]] = {
    "simple": simple,
    "rope": rope,
    "embedding": embedding,
    "linear": linear,
    "sdpa_dynamic": sdpa_dynamic,
    "update_cache": update_cache,
    "prepack": prepack,
    "index": index,
    "sdpa": sdpa,
    "dispatch_order": dispatch_order,
    "qkv": qkv,
    "quantized_linear": quantized_linear,
    "output_suppression": output_suppression,
    "single": single,
}
TRAINING = "a training op"
PARTLY = (
    "its other programs are made in other groups; not made are bk64 linears, k16 attention and swiglu, of the size of "
    "Llama 3.2 1B"
)
REASONS = {
    "test_fused_ce.export_fused_ce_model": TRAINING,
    "test_fused_ce.export_all_fused_ce_models": TRAINING,
    "test_quantized_linear_backward.export_backward_model": TRAINING,
    "test_quantized_linear_backward.export_all_backward_models": TRAINING,
    "dynamic_shape.test_dynamic_shape_export.export_dynamic_shape_cases": PARTLY,
    "dynamic_shape.test_dynamic_shape_export.export_dynamic_gelu_boundary_cases": "heavy: 16,776,961 elements",
    "test_sdpa.export_all_sdpa_models": "its programs are made one by one",
    "test_update_cache.export_update_cache_model": "its result is undefined; the group update_cache has such programs",
}


def write_left_out(out: Path, left_out: dict[str, str]) -> None:
    (out / "left_out.json").write_text(json.dumps(left_out, indent=1) + "\n")


def read_list(path: Path) -> list[Any]:
    return list(json.loads(path.read_text())) if path.exists() else []


def make_ops(out: Path, names: list[str], heavy: bool) -> int:
    """ExecuTorch's op tests; returns how many could not be made."""
    manifest = out / "manifest.json"
    entries = read_list(manifest)
    done = {entry["pte"] for entry in entries}
    failed: dict[str, str] = {}
    for op in names or op_test_registry:
        for case in op_test_registry[op].cases:
            program = f"{op}__{case.name or 'case'}.pte"
            if (case.heavy and not heavy) or program in done:
                continue
            try:
                entries += generate_case(op, op_test_registry[op], case, str(out))
                done.add(program)
            except Exception as error:
                failed[program] = f"{type(error).__name__}: {error}"
                print(f"{program}: {failed[program]}", file=sys.stderr)
        manifest.write_text(json.dumps(entries, indent=1) + "\n")
        print(f"{op}: {len(entries)} entries", flush=True)
    every = {f"{op}__{case.name or 'case'}.pte": case for op, suite in op_test_registry.items() for case in suite.cases}
    missing = {name: "heavy" if case.heavy else "not asked for" for name, case in every.items() if name not in done}
    write_left_out(out, missing | failed)
    return len(failed)


def make_calls(out: Path, names: list[str]) -> int:
    """The programs of the native tests with their calls; returns how many groups could not be made."""
    watch_exporters()
    manifest, called = out / "manifest.json", out / "called.json"
    entries = read_list(manifest)
    CALLED.update(read_list(called))
    failed: dict[str, str] = {}
    for name in names or GROUPS:
        recorder, start = Recorder(out, name), time.monotonic()
        try:
            GROUPS[name](recorder)
        except Exception as error:
            failed[f"group {name}"] = f"{type(error).__name__}: {error}"
            print(f"{name}: {failed[f'group {name}']}", file=sys.stderr)
        entries = [entry for entry in entries if entry["op"] != name] + recorder.entries
        manifest.write_text(json.dumps(entries, indent=1) + "\n")
        called.write_text(json.dumps(sorted(CALLED)) + "\n")
        print(f"{name}: {len(recorder.entries)} programs, {time.monotonic() - start:.0f} s", flush=True)
    missing = {name: REASONS.get(name, "needs arguments") for name in exporters() if name not in CALLED}
    write_left_out(out, missing | failed)
    return len(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("ops", "calls"))
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--heavy", action="store_true", help="also op tests of the size of Llama 3.2 1B")
    args = parser.parse_args()
    known = op_test_registry if args.set == "ops" else GROUPS
    if unknown := set(args.names) - set(known):
        parser.error(f"no such name: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    # The exporter traces its rope patterns again for every graph it lowers, some 15 s each time; once is enough.
    for pattern in vulkan_patterns.fusable_patterns.values():
        if pattern.get_graphs_fn is not None:
            pattern.get_graphs_fn = functools.cache(pattern.get_graphs_fn)
    # The exporter checks its graph after every pass: half of its time, and no influence on the program.
    Verifier.check = lambda self, program: None  # type: ignore[method-assign]
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    is_ops = args.set == "ops"
    sys.exit(bool(make_ops(args.out, args.names, args.heavy) if is_ops else make_calls(args.out, args.names)))


if __name__ == "__main__":
    main()
