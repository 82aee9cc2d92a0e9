"""Division with rounding, and powers: elementwise ops of two tensors that WGSL has no operator for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array
from .expression import binary_plan, in_dtype, numeric
from .limits import Limits
from .plan import Plan, unsupported
from .scalar import power_expr
from .spec import Args, Case, op

_LIVE = ({"a": (1, 1, 52), "b": (1, 1, 52)}, {"a": (1, 5, 52), "b": (1, 5, 52)})


def _rest() -> str:
    """a - floor(a / b) * b, exactly: the factors are split so that every product fits a float."""
    q = "floor(a / b)"
    high = {n: f"bitcast<BOTH_T>(bitcast<BITS_T>({x}) & BITS_T(0xfffff000u))" for n, x in (("q", q), ("b", "b"))}
    low = {n: f"({x} - {high[n]})" for n, x in (("q", q), ("b", "b"))}
    rest = (
        f"a - {high['q']} * {high['b']} - {high['q']} * {low['b']} - {low['q']} * {high['b']} - {low['q']} * {low['b']}"
    )
    return f"select({rest}, a, abs(b) == {{0}})"


_REST = _rest()
_LESS = f"({_REST} != BOTH_T(0)) & (({_REST} < BOTH_T(0)) != (b < BOTH_T(0)))"
# One less where a / b was rounded up to a whole number; NaN for an infinite a, as in PyTorch.
_FLOOR = f"select(floor(a / b) - select(BOTH_T(0), BOTH_T(1), {_LESS}), {{1}}, (abs(a) == {{0}}) & (b != BOTH_T(0)))"


def make_divisor(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    b = rng.uniform(0.5, 3, a["b"]) * rng.choice((-1, 1), a["b"])
    return {"a": (rng.standard_normal(a["a"]) * 7).astype(np.float32), "b": b.astype(np.float32)}


_QUOTIENTS: Mapping[str | None, Callable[..., Any]] = {
    None: np.divide,
    "floor": np.floor_divide,  # exact, where the quotient itself would be rounded up: floor(1 / 0.1) is 9
    "trunc": lambda a, b: np.trunc(np.float32(a) / np.float32(b)) if "f" in a.dtype.kind + b.dtype.kind else a / b,
}


def div_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    quotient = _QUOTIENTS[a.attrs.get("mode")](numeric(t["a"]), numeric(t["b"]))
    return [in_dtype(quotient, a.dtypes.get("out", "float32"))]


@op(
    "aten.div.Tensor_mode",
    "a/float|int b/float|int mode?:str -> out/float|int",
    reference=div_reference,
    make=make_divisor,
    cases=(
        Case({"a": (1, 29, 52), "b": (1, 29, 52)}, {"mode": "floor"}, _LIVE),
        Case({"a": (5, 3), "b": (3,)}, {"mode": "trunc"}),
    ),
)
def div_mode(a: Args, limits: Limits) -> Plan:
    mode = a.attrs.get("mode")
    unsupported(mode in _QUOTIENTS, f"division rounded by {mode!r} has no kernel")
    dtypes = [a.dtypes.get(n, "float32") for n in ("a", "b", "out")]
    if any(d.startswith("float") for d in dtypes):
        if mode == "floor":
            return binary_plan(a, _FLOOR, limits, (math.inf, math.nan))
        return binary_plan(a, "trunc(a / b)" if mode else "a / b", limits)
    unsupported(mode is not None, f"a quotient that is not rounded can't be {dtypes[2]}")
    less = "select(BOTH_T(0), BOTH_T(1), (a % b != BOTH_T(0)) & ((a < BOTH_T(0)) != (b < BOTH_T(0))))"
    return binary_plan(a, f"a / b - {less}" if mode == "floor" else "a / b", limits)


def make_base(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Bases of both signs with whole and fractional exponents; zero with exponents of both signs, and zero itself."""
    base, exponent = rng.uniform(-3, 3, a["a"]), rng.uniform(-2, 3, a["b"])
    exponent.reshape(-1)[::2] = np.rint(exponent.reshape(-1)[::2])
    base.reshape(-1)[::5] = np.abs(base.reshape(-1)[::5])
    base.reshape(-1)[::7] = 0
    return {"a": base.astype(np.float32), "b": exponent.astype(np.float32)}


def power_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return [np.power(t["a"].astype(np.float64), t["b"].astype(np.float64))]


@op(
    "aten.pow.Tensor_Tensor",
    "a b -> out",
    reference=power_reference,
    make=make_base,
    cases=(
        Case({"a": (1, 29, 52), "b": (1, 29, 52)}, {}, _LIVE, tol=1e-4),
        Case({"a": (4, 3), "b": (3,)}, tol=1e-4),
    ),
)
def power(a: Args, limits: Limits) -> Plan:
    return binary_plan(a, power_expr("a", "b", "{0}", "{1}"), limits, (math.inf, math.nan))
