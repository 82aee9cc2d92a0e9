"""What the commands print, as text for a Python prompt and as HTML for a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_PAGE = '<pre style="overflow-x: auto; white-space: pre; line-height: 1.3">{code}</pre>'


def as_text(items: Iterable[Any], width: int = 110) -> str:
    """Tables, trees and lines as plain text of this width."""
    text = _printed(items, width).export_text()
    return "\n".join(line.rstrip() for line in text.splitlines())


def as_html(items: Iterable[Any], width: int = 150) -> str:
    """The same with colours. Text without a colour has that of the notebook, light or dark."""
    return _printed(items, width).export_html(inline_styles=True, code_format=_PAGE)


def _printed(items: Iterable[Any], width: int) -> Console:
    """A console that has recorded these. It would find the notebook by itself, and print there."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width,
        markup=False,
        highlight=False,
        emoji=False,
        record=True,
        force_jupyter=False,
        force_terminal=True,
        color_system="truecolor",
    )
    for item in items:
        console.print(item)
    return console
