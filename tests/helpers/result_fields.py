"""The fields of rows as docs/results.md has them."""

from __future__ import annotations

import re

from .command import HERE

PAGE = HERE.parent / "docs" / "results.md"


def documented(section: str) -> set[str]:
    """The names in the first column of a section's table."""
    body = PAGE.read_text("utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
