"""`--check`, `--nan-check` and `--dump`: a graph run node by node, every output looked at while it is alive."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import CheckError, UsageError
from ..gpu.callstats import CallStats
from ..graph.graph import Node
from ..ops.spec import Args
from ..runtime.model import Model
from ..runtime.runner import Runner
from ..shapes import Array

NMSE = 1e-5  # mean squared error over mean square; kernels in f32 stay near 1e-12, with 8-bit activations near 1e-6
SPREAD = 0.02  # largest difference over the largest value

Look = Callable[[Runner, Node, Mapping[str, Array], Sequence[Array]], None]


class Stepper:
    """A visitor that runs a graph node by node and shows each node's inputs (as they were) and outputs to `looks`."""

    def __init__(self, looks: Sequence[Look], *, inputs: bool) -> None:
        self.looks, self.inputs = looks, inputs
        self.calls = 0

    def __call__(self, runner: Runner, given: Sequence[Array], stats: CallStats) -> list[Array]:
        executor, graph = runner.executor, runner.graph
        self.calls += 1
        stats.dispatches = len(executor.commands())
        for node in graph.nodes:
            if node.op.out_kind == "symint" or node is runner.pick:
                continue
            before = {name: value(runner, v) for name, v in node.tensors.items()} if self.inputs else {}
            executor.execute_node(node.index)
            outs = [executor.read(v) for v in node.outs]
            for look in self.looks:
                look(runner, node, before, outs)
        return [executor.read(v) for v in executor.readbacks]


def value(runner: Runner, v: int) -> Array:
    """A tensor as a reference takes it: a constant in the file's own bytes, anything else as the GPU holds it now."""
    tensors = runner.graph.tensors
    if runner.graph.is_constant(v) and not tensors[tensors[v].root].mutable:
        return runner.graph.constant(v)
    array, dtype = runner.executor.read(v), tensors[v].dtype
    return array if array.dtype.kind == "f" else array.astype(dtype)


def live_args(runner: Runner, node: Node) -> Args:
    """The arguments of a node as its reference takes them: live dims, and numbers where the graph has SymInts."""
    args, slots = runner.engine.args(node), runner.engine.slot_values()
    return node.args(args.dims, {**args.attrs, **{name: slots[slot] for name, slot in node.slots.items()}})


@dataclass(slots=True)
class Check:
    """Compares outputs with references; raises at the first op that is off."""

    compared: int = 0
    without: dict[str, int] = field(default_factory=dict)  # ops that have no reference
    worst: dict[str, float] = field(default_factory=dict)  # op -> largest NMSE
    _caches: dict[tuple[int, int], dict[str, Array]] = field(default_factory=dict)

    def __call__(self, runner: Runner, node: Node, before: Mapping[str, Array], outs: Sequence[Array]) -> None:
        if node.op.reference is None:
            self.without[node.op.short] = self.without.get(node.op.short, 0) + 1
            return
        args, key = live_args(runner, node), (id(runner), node.index)
        before = {**before, **self._caches.get(key, {})}
        with np.errstate(all="ignore"):
            made = node.op.reference(args, before)
            if node.op.remember:
                self._caches[key] = dict(zip(node.op.named("cache"), node.op.remember(args, before), strict=True))
        wanted = [made] if isinstance(made, np.ndarray) else list(made)
        for k, (out, want) in enumerate(zip(outs, wanted, strict=False)):
            name = node.label if len(wanted) == 1 else f"{node.label} output {k}"
            error = compare(out, np.asarray(want), name)
            self.worst[node.op.short] = max(self.worst.get(node.op.short, 0.0), error)
        self.compared += 1


def compare(out: Array, want: Array, name: str) -> float:
    """The NMSE of a GPU output; CheckError where it is more than rounding."""
    if out.shape != want.shape:
        raise CheckError(f"{name} has dims {list(out.shape)}, its reference {list(want.shape)}")
    if not out.size:
        return 0.0
    exact = want.dtype.kind in "iub"
    a, b = out.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        diff = np.where(same, 0.0, np.abs(a - b))
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(diff), np.inf, diff))), diff.shape)
    finite = b[np.isfinite(b)]
    square, top = float(np.mean(finite**2)) if finite.size else 0.0, float(np.abs(finite).max(initial=0.0))
    nmse = float(np.mean(diff**2)) / max(square, 1e-30)
    # Where a reference is all but zero the ratio says nothing.
    off = not nmse <= NMSE or not float(diff.max()) <= SPREAD * top
    if (exact and diff.any()) or (off and not float(diff.max()) <= 1e-6):
        place = ", ".join(map(str, at))
        raise CheckError(f"{name} is off: GPU {a[at]:.6g}, reference {b[at]:.6g} at [{place}], NMSE {nmse:.1e}")
    return nmse if np.isfinite(nmse) else 0.0


def check_finite(runner: Runner, node: Node, before: Mapping[str, Array], outs: Sequence[Array]) -> None:
    """Raises at the first output with NaN, or with an infinity that is not from an input: masks hold those."""
    for out in outs:
        if out.dtype.kind != "f" or np.isfinite(out).all():
            continue
        nans, infs = int(np.isnan(out).sum()), int(np.isinf(out).sum())
        given = (value(runner, v) for v in node.tensors.values()) if not nans else ()
        if any(x.dtype.kind == "f" and np.isinf(x).any() for x in given):
            continue
        at = ", ".join(map(str, np.argwhere(~np.isfinite(out))[0]))
        counts = " and ".join(f"{n} {what}" for n, what in ((nans, "NaN"), (infs, "infinite")) if n)
        raise CheckError(f"{node.label} gave {counts} of {out.size} numbers, the first at [{at}]")


@dataclass(slots=True)
class FiniteCheck:
    """`check_finite` that counts the outputs."""

    checked: int = 0

    def __call__(self, runner: Runner, node: Node, before: Mapping[str, Array], outs: Sequence[Array]) -> None:
        check_finite(runner, node, before, outs)
        self.checked += len(outs)


@dataclass(frozen=True, slots=True)
class Dump:
    """`OP#N[@CALL]=file.npy`."""

    label: str
    call: int
    path: Path

    @classmethod
    def parse(cls, text: str) -> Dump:
        found = re.fullmatch(r"([^=]+?)(?:@(\d+))?=(.+)", text)
        if not found:
            raise UsageError(f"--dump {text!r} is not OP#N=FILE.npy")
        return cls(found[1], int(found[2] or 1), Path(found[3]))


class Dumper:
    """Writes what the named ops gave; names are those of the graph that runs: the file's own unless `fused`."""

    def __init__(
        self, dumps: Sequence[Dump], model: Model, write: Callable[[Path, Array], None], *, fused: bool
    ) -> None:
        self.dumps, self.write = dumps, write
        self.graph = "the fused graph" if fused else "the graph"
        self.stepper: Stepper | None = None
        self.written: dict[Dump, str] = {}
        labels = [
            n.label for r in model.runners for n in r.graph.nodes if n.op.out_kind != "symint" and n is not r.pick
        ]
        for dump in dumps:
            if dump.label not in labels:
                more = ", --no-fuse runs the file's own ops" if fused else ""
                near = " or ".join(nearest(dump.label, labels))
                raise UsageError(
                    f"--dump: {self.graph} has no {dump.label}",
                    hint=f"did you mean {near}? --trace-resize shows all{more}",
                )

    def __call__(self, runner: Runner, node: Node, before: Mapping[str, Array], outs: Sequence[Array]) -> None:
        for dump in self.dumps:
            if dump.label == node.label and self.stepper and dump.call == self.stepper.calls:
                self.write(dump.path, outs[0])
                self.written[dump] = f"{outs[0].dtype} {list(outs[0].shape)}"

    def told(self) -> list[str]:
        """A line for each file: which graph's op it is of, as the numbers of the other would name another op."""
        return [
            f"dump: {d.label} of {self.graph}, {self.written[d]} ({d.path})"
            if d in self.written
            else f"warning: --dump: {d.label} did not run in call {d.call} ({d.path})"
            for d in self.dumps
        ]


def nearest(label: str, labels: Sequence[str]) -> list[str]:
    """Up to three labels: of the same op those with the nearest numbers, else those spelled most alike, else any."""
    name, _, number = label.partition("#")
    same = [x for x in labels if x.partition("#")[0] == name]
    if number.isdecimal():
        same.sort(key=lambda x: abs(int(x.partition("#")[2]) - int(number)))
    return (same or difflib.get_close_matches(label, labels, 3) or list(labels))[:3]


def blame(model: Model, inputs: Sequence[Array]) -> CheckError | None:
    """Which op first gives a number that is not finite, for inputs just run: the same call again, node by node."""
    before = [runner.visitor for runner in model.runners]
    try:
        for runner in model.runners:
            runner.visitor = Stepper([check_finite], inputs=False)
        model.run(inputs)
    except CheckError as error:
        return error
    finally:
        for runner, visitor in zip(model.runners, before, strict=True):
            runner.visitor = visitor
    return None
