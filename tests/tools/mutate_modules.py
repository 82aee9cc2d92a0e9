#!/usr/bin/env python3
"""Break one function at a time in a copy of the repository, and see that the tests named for it fail.

    python tests/tools/mutate_modules.py [PART ...]    only mutants whose description has one of these parts

Plans have mutants of their own (`mutate_plans.py`). These are one level above: an op, a pass or a route that is never
used, a cache layer that is never bound, a checker that accepts everything, a reader that skips a check, a command with
the wrong exit code. The named tests must pass in the unchanged copy first. Prints a Markdown table: mutant, and the
first test that failed.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("webgpu_run", "wgsl", "tests", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function with another body, or with `old` in it replaced by `body`.

    `function` is its name, after that of its class if it has one.
    """

    what: str
    path: str
    function: str
    body: str
    tests: str  # arguments of pytest
    old: str = ""

    def apply(self, source: str) -> str:
        """The mutated source."""
        node = find(source, self.function)
        lines = source.splitlines(keepends=True)
        if self.old:
            before, own, after = (
                lines[: node.lineno - 1],
                lines[node.lineno - 1 : node.end_lineno],
                lines[node.end_lineno :],
            )
            text = "".join(own)
            assert text.count(self.old) == 1, f"{self.what}: {self.old!r} is there {text.count(self.old)} times"
            return "".join(before) + text.replace(self.old, self.body) + "".join(after)
        indent = " " * (node.col_offset + 4)
        body = textwrap.indent(self.body, indent) + "\n"
        return "".join(lines[: node.body[0].lineno - 1]) + body + "".join(lines[node.end_lineno :])


def find(source: str, name: str) -> ast.FunctionDef:
    """The definition of `function` or `Class.function`."""
    body: Iterable[ast.stmt] = ast.parse(source).body
    *classes, last = name.split(".")
    for part in classes:
        body = next(n.body for n in body if isinstance(n, ast.ClassDef) and n.name == part)
    return next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == last)


def passes() -> list[Mutant]:
    """Each pass of fusion as one that changes nothing."""
    sys.path.insert(0, str(ROOT))
    from webgpu_run.graph.fuse import PASSES

    found = []
    for step in PASSES:
        path = str(Path(sys.modules[step.__module__].__file__ or "").relative_to(ROOT))
        what = f"fusion: {step.__name__} never fires"
        found.append(Mutant(what, path, step.__name__, "return", "tests/test_passes.py tests/test_fuse.py"))
    return found


OPS, GRAPH, GPU = "webgpu_run/ops", "webgpu_run/graph", "webgpu_run/gpu"
FORMATS, DEBUG, RUNTIME = "webgpu_run/formats", "webgpu_run/debug", "webgpu_run/runtime"
CONSOLE, CLI = "webgpu_run/console", "webgpu_run/cli"
Q4 = "tests/test_q4_plans.py tests/test_op_plans.py -k q4"
FAULTS, CHECKERS = "tests/test_faults.py", "tests/test_checkers.py"

MUTANTS = (
    # ops and routes that are never chosen
    Mutant(
        "the fused attention fits no shape",
        f"{OPS}/attention_q4gsw.py",
        "fits",
        "return False",
        "tests/test_op_plans.py -k attention_q4gsw",
    ),
    Mutant("no 4-bit weight can be packed", f"{OPS}/q4_layout.py", "fits", "return False", "tests/test_fuse.py"),
    Mutant("many rows are never tiled", f"{OPS}/q4_gpu.py", "uses_tiles", "return False", Q4),
    Mutant("rows never go through a texture", f"{OPS}/q4_activations.py", "_can_stage", "return False", Q4),
    Mutant(
        "a single row is never rounded in the kernel",
        f"{OPS}/q4_activations.py",
        "source",
        "rounds = False and",
        Q4,
        old="rounds = m == 1 and",
    ),
    Mutant(
        "caches are never textures",
        f"{OPS}/attention.py",
        "on_textures",
        "return False",
        "tests/test_attention_plans.py",
    ),
    # resources
    Mutant(
        "layers of a cache past the first are never bound",
        f"{GPU}/commands.py",
        "CommandStream._layers_to_bind",
        "return 1",
        "tests/test_reached.py",
    ),
    Mutant(
        "reset empties no cache", f"{GPU}/executor.py", "Executor.reset", "return", "tests/test_goldens.py -k reset"
    ),
    Mutant(
        "logits also cost a choice", f"{GPU}/executor.py", "Executor.skip", "return", "tests/test_session.py -k logits"
    ),
    # checkers
    Mutant("all bits are the same", f"{DEBUG}/fresh_build.py", "same_bits", "return", CHECKERS),
    Mutant("a fresh build's state is not compared", f"{DEBUG}/fresh_build.py", "_Fresh.compare", "return", CHECKERS),
    Mutant("every output equals its reference", f"{DEBUG}/stepping.py", "compare", "return 0.0", CHECKERS),
    Mutant("every number is finite", f"{DEBUG}/stepping.py", "check_finite", "return", CHECKERS),
    Mutant(
        "no output has a reference",
        f"{DEBUG}/stepping.py",
        "Check.__call__",
        "return",
        "tests/test_cli_views.py -k check",
    ),
    Mutant("any live shape fits", f"{GRAPH}/planner.py", "Engine._check_live", "return", "tests/test_plans.py"),
    Mutant("any position fits", f"{GRAPH}/planner.py", "Engine._check_bounds", "return", "tests/test_plans.py"),
    Mutant(
        "any input fits", f"{RUNTIME}/model.py", "Model._check_dims", "return", "tests/test_cli_faults.py -k inputs"
    ),
    Mutant("any model fits the device", f"{GRAPH}/budget.py", "check", "return", "tests/test_refusals.py"),
    Mutant(
        "any workgroup fits",
        f"{GRAPH}/budget.py",
        "_workgroup_problems",
        "yield from ()",
        "tests/test_refusals.py",
    ),
    Mutant("any method can run", f"{RUNTIME}/support.py", "check_method", "return", "tests/test_refusals.py"),
    # readers
    Mutant("any byte is in the buffer", f"{FORMATS}/flatbuffer.py", "Reader._need", "return", f"{FAULTS} -k vtable"),
    Mutant("reading has no budget", f"{FORMATS}/flatbuffer.py", "Reader._spend", "return", "tests/test_flat.py"),
    Mutant(
        "any header is right", f"{FORMATS}/container.py", "_check_header", "return header", f"{FAULTS} -k program_size"
    ),
    Mutant(
        "ids of a graph are not checked",
        f"{FORMATS}/vkgraph_reader.py",
        "_Graph._check_ids",
        "return",
        f"{FAULTS} -k value_ids",
    ),
    Mutant(
        "the order is not checked",
        f"{FORMATS}/vkgraph_reader.py",
        "_Graph._check_order",
        "return",
        f"{FAULTS} -k written",
    ),
    Mutant(
        "segments may lie past the end",
        f"{FORMATS}/container.py",
        "_segments",
        "return tuple(Span(source, header.segment_base + r['offset'], r['size']) for r in root['segments'])",
        f"{FAULTS} -k segments",
    ),
    # commands and files
    Mutant(
        "errors have the exit code of success",
        f"{CONSOLE}/command.py",
        "_report",
        "click.echo(f'{name}: error: {one_line(message)}', err=True)\nreturn 0",
        "tests/test_command.py",
    ),
    Mutant(
        "messages may have many lines", f"{CONSOLE}/terminal.py", "one_line", "return text", f"{FAULTS} -k missing_file"
    ),
    Mutant(
        "files are written in place",
        f"{CONSOLE}/outfile.py",
        "write",
        "with open(path, 'wb') as out:\n    out.write(data)",
        "tests/test_bench_cli.py tests/test_write.py -k 'interrupt or killed or nothing'",
    ),
    Mutant(
        "an output may be an input",
        f"{CONSOLE}/outfile.py",
        "check_target",
        "return Path(path)",
        "tests/test_cli_faults.py -k overwrite",
    ),
    Mutant(
        "the stats line is empty",
        f"{CLI}/run_totals.py",
        "RunTotals.line",
        "return ''",
        "tests/test_cli_faults.py -k while_decoding",
    ),
    Mutant(
        "the given .ptd files are not read",
        f"{RUNTIME}/open.py",
        "open_program",
        "return pte.load(path or bundled_model(), None)",
        "tests/test_inspect.py -k test_external_weights_are_found_beside_the_model",
    ),
)


def copy_tree(to: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)


def run(tree: Path, tests: str) -> tuple[int, str]:
    """Pytest's exit code, and the first test that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *shlex.split(tests)]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, env=env)
    failed = re.search(r"^FAILED (.+?)(?: - |$)", done.stdout, re.M)
    return done.returncode, failed[1] if failed else done.stdout[-400:]


def main(argv: list[str]) -> int:
    mutants = [m for m in (*passes(), *MUTANTS) if not argv or any(part in m.what for part in argv)]
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        for tests in dict.fromkeys(m.tests for m in mutants):
            code, what = run(tree, tests)
            if code:
                print(f"{tests} fails without a mutant: {what}", flush=True)
                return 1
        print("| mutant | killed by |\n|---|---|", flush=True)
        for mutant in mutants:
            path = tree / mutant.path
            source = path.read_text()
            path.write_text(mutant.apply(source))
            code, what = run(tree, mutant.tests)
            path.write_text(source)
            survived += code != 1
            print(f"| {mutant.what} | {f'`{what}`' if code == 1 else f'SURVIVED ({code})'} |", flush=True)
    print(f"\n{len(mutants) - survived} of {len(mutants)} killed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
