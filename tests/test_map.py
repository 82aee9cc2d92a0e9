"""The pages that lead through the code name files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    *("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "bench/README.md", "tests/README.md", "wgsl/README.md"),
    *("examples/export/README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))),
)
TOP = ("webgpu_run", "wgsl", "tests", "bench", "docs", "examples")
PATH = re.compile(rf"`((?:{'|'.join(TOP)})/[\w./-]*)`")
SYMBOL = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)*)`\s+in\s+`([\w/]+\.py)`")


def wrong(text: str) -> list[str]:
    """What a page names and the repository does not have."""
    missing = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    for name, path in SYMBOL.findall(text):
        source = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
        defined = [re.search(rf"^\s*(?:def |class )?{part}\b", source, re.M) for part in name.split(".")]
        if not all(defined):
            missing.append(f"{name} in {path}")
    return missing


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_what_exists(page: str) -> None:
    assert wrong((ROOT / page).read_text()) == []


@pytest.mark.parametrize(("page", "least"), [("ARCHITECTURE.md", 20), ("CONTRIBUTING.md", 10)])
def test_a_page_names_enough_to_be_checked(page: str, least: int) -> None:
    assert len(set(PATH.findall((ROOT / page).read_text()))) >= least


def test_the_map_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [p.name for p in (ROOT / "webgpu_run").iterdir() if (p / "__init__.py").exists()]
    assert len(packages) >= 10
    assert [name for name in packages if f"`webgpu_run/{name}/`" not in text] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in (ROOT / p for p in PAGES):
        text = page.read_text()
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r'src(?:set)?="([^"]+)"', text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    "text",
    [
        "see `webgpu_run/graph/none.py`",
        "see `wgsl/none.wgsl`",
        "`Engine.shrink` in `webgpu_run/graph/planner.py`",
        "`resize` in `webgpu_run/graph/none.py`",
    ],
)
def test_a_wrong_name_is_seen(text: str) -> None:
    assert wrong(text)
