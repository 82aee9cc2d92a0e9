"""Division with rounding, and powers: elementwise ops of two tensors that WGSL has no operator for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..shapes import Array
from .elementwise import binary_step
from .limits import Limits
from .plan import Plan, unsupported
from .spec import Args, Case, op

_LIVE = ({"a": (1, 1, 52), "b": (1, 1, 52)}, {"a": (1, 5, 52), "b": (1, 5, 52)})


def _plan(a: Args, expr: str, limits: Limits) -> Plan:
    out, step, route = binary_step(a, expr, limits)
    return Plan((out,), (step,) if step else (), route)


def make_divisor(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    b = rng.uniform(0.5, 3, a["b"]) * rng.choice((-1, 1), a["b"])
    return {"a": (rng.standard_normal(a["a"]) * 7).astype(np.float32), "b": b.astype(np.float32)}


_ROUNDED: Mapping[str | None, Callable[[Array], Array]] = {"floor": np.floor, "trunc": np.trunc, None: lambda x: x}


@op(
    "aten.div.Tensor_mode",
    "a b mode?:str -> out",
    reference=lambda a, t: [_ROUNDED[a.attrs.get("mode")](t["a"] / t["b"])],
    make=make_divisor,
    cases=(
        Case({"a": (1, 29, 52), "b": (1, 29, 52)}, {"mode": "floor"}, _LIVE),
        Case({"a": (5, 3), "b": (3,)}, {"mode": "trunc"}),
    ),
)
def div_mode(a: Args, limits: Limits) -> Plan:
    mode = a.attrs.get("mode")
    unsupported(mode in _ROUNDED, f"division rounded by {mode!r} has no kernel")
    if {a.dtypes.get(n, "float32")[:3] for n in "ab"} == {"int"}:
        sign = "select(BOTH_T(0), BOTH_T(1), (a % b != BOTH_T(0)) & ((a < BOTH_T(0)) != (b < BOTH_T(0))))"
        return _plan(a, f"a / b - {sign}" if mode == "floor" else "a / b", limits)
    return _plan(a, f"{mode}(a / b)" if mode else "a / b", limits)


def make_base(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Positive bases with any exponent, negative bases and zero with whole exponents."""
    base = rng.uniform(0.2, 3, a["a"]).astype(np.float32)
    exponent = rng.uniform(-2, 3, a["b"]).astype(np.float32)
    if a["a"] == a["b"] and base.size > 4:
        flat, powers = base.reshape(-1), exponent.reshape(-1)
        flat[:4], powers[:4] = (-2, -1.5, 0, 0), (3, 2, 2, 0)
    return {"a": base, "b": exponent}


def power_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
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
    floats = all(a.dtypes.get(n, "float32").startswith("float") for n in "ab")
    unsupported(floats, "a power of integers has no kernel")
    odd = "(a < BOTH_T(0)) & (abs(b % BOTH_T(2)) == BOTH_T(1))"
    value = f"pow(abs(a), b) * select(BOTH_T(1), BOTH_T(-1), {odd})"
    return _plan(a, f"select({value}, BOTH_T(1), b == BOTH_T(0))", limits)
