"""Tables for narrow terminals: less important columns are left out, and no cell is split."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 2  # columns between two cells


def fitting(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, order: Sequence[str]) -> list[int]:
    """Which columns to show, so that lines fit the width. The columns in `order` are left out first, one by one."""
    from rich.cells import cell_len

    sizes = [max(cell_len(text) for text in column) for column in zip(heads, *rows, strict=True)]
    hidden: list[str] = []

    def size() -> int:
        kept = [n for n, head in zip(sizes, heads, strict=True) if head not in hidden]
        return sum(kept) + GAP * (len(kept) - 1)

    while size() > width and len(hidden) < len(order):
        hidden.append(order[len(hidden)])
    for name in tuple(reversed(hidden)):  # a wide column may have made room for narrow ones
        hidden.remove(name)
        if size() > width:
            hidden.append(name)
    return [i for i, head in enumerate(heads) if head not in hidden]
