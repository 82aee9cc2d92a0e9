"""Integers known only at call time: live sizes, values read from an input, and arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ShapeError
from ..shapes import wrap
from .limits import Limits
from .plan import Plan
from .spec import Args, op


@op("sym_size.int", "x/any dim:int -> out:symint")
def sym_size(a: Args, limits: Limits) -> Plan:
    return Plan(sym=a["x"][wrap(a.int("dim"), len(a["x"]))])


@op("et_vk.select_as_symint.default", "x/int dim:int index:int -> out:symint", reads_data="x")
def select_as_symint(a: Args, limits: Limits) -> Plan:
    data = a.attrs["data"]
    if data is None:
        return Plan(sym=0)  # at build there is no data yet
    x = data.take(a.int("index"), a.int("dim")).reshape(-1)
    if x.size != 1:
        raise ShapeError(f"index {a.int('index')} of dims {list(data.shape)} is not one number")
    return Plan(sym=int(x[0]))


def _arithmetic(name: str, f: Callable[[int, int], int]) -> None:
    @op(name, "a:sym b:sym -> out:symint")
    def plan(a: Args, limits: Limits) -> Plan:
        return Plan(sym=f(a.int("a"), a.int("b")))


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise ShapeError(f"{a} divided by zero")
    return a // b


_arithmetic("add", lambda a, b: a + b)
_arithmetic("sub", lambda a, b: a - b)
_arithmetic("mul", lambda a, b: a * b)
_arithmetic("floordiv", _floordiv)
