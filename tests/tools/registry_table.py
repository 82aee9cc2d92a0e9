"""Compare our ops with those that ExecuTorch's WebGPU and Vulkan backends register and its partitioner lowers.

    python tests/tools/registry_table.py SOURCE [--out docs/registry.md]

Needs torch and executorch, whose wheel has the partitioner's table, and a source tree of ExecuTorch, because the wheel
does not have the runtimes: their names are the first argument of the macros WEBGPU_REGISTER_OP and VK_REGISTER_OP.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

from webgpu_run.errors import UnsupportedError  # noqa: E402
from webgpu_run.formats.pte import Delegate, Method  # noqa: E402
from webgpu_run.formats.source import BytesSource, Span  # noqa: E402
from webgpu_run.formats.vkgraph import OperatorCall, VkGraph  # noqa: E402
from webgpu_run.runtime.support import check_method, known_ops  # noqa: E402

RUNTIMES = {"WebGPU": ("backends/webgpu/runtime", "WEBGPU"), "Vulkan": ("backends/vulkan/runtime", "VK")}

_REMOVED = "no file has it: the exporter removes it before it writes a delegate"
_NO_VALUE = "no file has it: the exporter has no form for its result, a boolean, outside of a check that it removes"
NEVER_WRITTEN = {
    "aten._assert_scalar.default": _REMOVED,
    "aten.sym_constrain_range_for_size.default": _REMOVED,
    "getitem": "no file has it: the exporter writes the element of the list itself",
    **dict.fromkeys(("eq", "ge", "gt", "le", "lt"), _NO_VALUE),
    "llama.sdpa_with_kv_cache.default": "no file has it: the exporter writes `sdpa_with_kv_cache.default`",
}

PAGE = """# Ops of ExecuTorch's backends, and ours

Made by `tests/tools/registry_table.py` with ExecuTorch {version}. A runtime's column lists the names that it registers.
The partitioner's column lists what it lowers into a delegate; its passes replace some of these by other ops before a
file is written. A file with an op that is refused ends with that sentence before anything runs. Ops between delegates,
which run on the CPU, are not in this table.

| list | ops | run here | in no file | refused |
|---|---:|---:|---:|---:|
{counts}

{rows}
"""


def registered(source: Path, folder: str, prefix: str) -> set[str]:
    """Names that a runtime registers; the macro's own definition is not one."""
    if not (source / folder).is_dir():
        raise SystemExit(f"{source} has no {folder}: it is no source tree of ExecuTorch")
    files = [p for p in (source / folder).rglob("*") if p.suffix in (".cpp", ".h")]
    names = {n for p in files for n in re.findall(rf"{prefix}_REGISTER_OP\(\s*([\w.]+)", p.read_text())}
    return names - {"name"}


def lowered() -> set[str]:
    """Names that the partitioner of the installed wheel lowers, as files have them."""
    from executorch.backends.vulkan.op_registry import vulkan_supported_ops

    names = set()
    for op in vulkan_supported_ops:
        if not isinstance(op, str) and not hasattr(op, "name"):  # arithmetic of Python's operator module
            names.add(op.__name__)
            continue
        name = (op if isinstance(op, str) else op.name()).replace("::", ".")
        name = name if name.count(".") > 1 else f"{name}.default"
        names.add(name.removeprefix("aten.") if "sym_size" in name else name)
    return names


def ours(name: str) -> str:
    """Either "runs", or why no file has this op, or the sentence with which a method that calls it is refused."""
    if name in known_ops():
        return "runs"
    if name in NEVER_WRITTEN:
        return NEVER_WRITTEN[name]
    graph = VkGraph("", (OperatorCall(0, name, ()),), (), (), (), ())
    delegate = Delegate("VulkanBackend", (), Span(BytesSource(b"", "none"), 0, 0), graph)
    try:
        check_method(Method("forward", (), (), (), (), delegates=(delegate,)))
    except UnsupportedError as err:
        return f"refused: {err}"
    raise AssertionError(f"{name} is neither known nor refused")


def page(columns: dict[str, set[str]], version: str) -> str:
    names = sorted(set().union(*columns.values()))
    results = {name: ours(name) for name in names}
    counts = []
    for column, members in columns.items():
        running = sum(results[name] == "runs" for name in members)
        never = sum(results[name] in NEVER_WRITTEN.values() for name in members)
        counts.append(f"| {column} | {len(members)} | {running} | {never} | {len(members) - running - never} |")
    rows = []
    for name in names:
        members = " | ".join("yes" if name in column else "" for column in columns.values())
        rows.append(f"| `{name}` | {members} | {results[name]} |")
    head = f"| op | {' | '.join(columns)} | webgpu-run |\n|---|{'---|' * len(columns)}---|"
    return PAGE.format(version=version, counts="\n".join(counts), rows="\n".join([head, *rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a source tree of ExecuTorch")
    parser.add_argument("--out", type=Path, default=HERE.parents[2] / "docs" / "registry.md")
    args = parser.parse_args()
    columns = {name: registered(args.source, *place) for name, place in RUNTIMES.items()}
    columns["Vulkan partitioner"] = lowered()
    args.out.write_text(page(columns, importlib.metadata.version("executorch")))


if __name__ == "__main__":
    main()
