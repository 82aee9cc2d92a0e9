"""The select of the last row becomes part of the linear that reads it."""

from __future__ import annotations

from ...ops.limits import Limits
from ...ops.linear_last_row import can_offset
from ..pattern import Call, Is, matches
from ..rewrite import Rewrite
from .all_rows import LAST_ROW
from .linears import FUSED_1

LAST_ROW_LINEAR = "wr.linear_last_row_q4gsw"

_select = Call(LAST_ROW, x="x", dim=Is(1, -2), index=Is(-1))
_head = Call(FUSED_1, x=_select, res=Is(None), swiglu=Is(False))


def fuse_last_row(g: Rewrite, limits: Limits) -> None:
    """linear(x[:, -1]): the linear reads its row at an offset."""
    for match in matches(g, _head):
        x, head = g.tensor(match["x"]), match[_head]
        if x is not None and can_offset(x.dims, limits):
            match.replace(LAST_ROW_LINEAR, **head.but(x=match["x"]))
