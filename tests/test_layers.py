"""Imports go one way: each package may use only those listed above it."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "webgpu_run"
# From the bottom up. `version` and the data of `bundled` need nothing; the root package only re-exports.
LAYERS = (
    "version",
    "errors",
    "shapes",
    "assets",
    "console",
    "formats",
    "ops",
    "graph",
    "gpu",
    "runtime",
    "debug",
    "llm",
    "bench",
    "eval",
    "cluster",
    "cli",
)
ROOT_MODULES = ("__init__", "__main__")  # may import anything: the public names and `python -m webgpu_run`
# Which part of the package may import a library that costs start-up time or ties it to a device or a terminal.
LIBRARIES = {
    "wgpu": {"gpu"},
    "click": {"cli", "console"},
    "rich": {"cli", "console", "debug", "bench"},
    "tokenizers": {"llm"},
    "jinja2": {"llm"},
    "ray": {"cluster"},
}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path, source: str) -> set[str]:
    """Dotted names of all modules that a file imports, also inside functions; ours start with a dot."""
    parents = [*path.relative_to(PACKAGE).parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] + (node.module or "").split(".") * bool(node.module)
            found |= {"." + ".".join(base or [alias.name]) for alias in node.names}
    return found


def wrong_edges(path: Path, source: str) -> list[str]:
    part = part_of(path)
    if part in ROOT_MODULES:
        return []
    wrong = []
    for name in sorted(imports(path, source)):
        if name.startswith("."):
            target = name[1:].split(".")[0]
            if target != part and (target not in LAYERS or LAYERS.index(target) > LAYERS.index(part)):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {target}, which is above {part}")
        elif name.split(".")[0] == "webgpu_run":
            wrong.append(f"{path.relative_to(PACKAGE)} imports {name}: inside the package imports are relative")
        elif part not in LIBRARIES.get(name.split(".")[0], {part}):
            wrong.append(f"{path.relative_to(PACKAGE)} imports {name}, which is not for {part}")
    return wrong


def test_every_import_goes_down() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    assert {part_of(p) for p in files} <= {*LAYERS, *ROOT_MODULES}
    assert [edge for path in files for edge in wrong_edges(path, path.read_text())] == []


def test_few_modules_at_the_top() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 12


def test_wrong_edges_are_seen() -> None:
    """Each form of a wrong import, put into a real module on purpose."""
    for path, line, what in (
        ("ops/rms_norm.py", "from ..graph import fuse", "imports graph"),
        ("gpu/executor.py", "def f():\n    from ..llm.session import Session", "imports llm"),
        ("graph/memory.py", "from .. import runtime", "imports runtime"),
        ("formats/pte.py", "import wgpu", "imports wgpu"),
        ("debug/trace.py", "from webgpu_run.llm.template import Template", "relative"),
        ("runtime/model.py", "import rich.console", "imports rich"),
    ):
        module = PACKAGE / path
        assert [e for e in wrong_edges(module, module.read_text() + "\n" + line) if what in e], line


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
