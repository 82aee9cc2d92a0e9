"""CPU kernels that work on each element by itself, and arithmetic on symbolic integers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array
from .cpu_table import Scalar, common, elementwise, fitting, kernel, plain

_erf_of = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    return np.asarray(_erf_of(x)).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def softplus(x: Array) -> Any:
    return np.logaddexp(x, x.dtype.type(0))


def _whole(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Rounding, which leaves integers as they are."""
    return lambda x: f(x) if x.dtype.kind == "f" else x


FLOAT_UNARY: Mapping[str, Callable[[Any], Any]] = {  # integers become float32
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": erf,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
UNARY: Mapping[str, Callable[[Any], Any]] = {
    "_conj_physical": np.conj,
    "abs": np.abs,
    "bitwise_not": np.invert,
    "ceil": _whole(np.ceil),
    "floor": _whole(np.floor),
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "logical_not": np.logical_not,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "round": _whole(np.round),
    "sign": lambda x: (x > 0).astype(x.dtype) if x.dtype == bool else (x > 0).astype(x.dtype) - (x < 0),
    "silu": lambda x: x * sigmoid(x),
    "square": np.square,
    "trunc": _whole(np.trunc),
}
COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _divisor(b: Array) -> Array:
    if b.dtype.kind in "biu" and not b.all():
        raise ZeroDivisionError("an integer is divided by zero")
    return b


def _truncated(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    return (np.abs(a) // np.abs(_divisor(b))) * np.sign(a) * np.sign(b)


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and (b < 0).any():  # 1 / a, rounded to zero
        signs = np.where(b % 2 == 0, a * a, a)
        return np.where(b < 0, np.where(np.abs(a) == 1, signs, 0), np.power(a, np.maximum(b, 0)))
    return np.power(a, b)


BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "mul.out mul.Scalar_out": np.multiply,
    "floor_divide.out": lambda a, b: np.floor_divide(a, _divisor(b)),
    "remainder.Tensor_out remainder.Scalar_out": lambda a, b: np.remainder(a, _divisor(b)),
    "fmod.Tensor_out fmod.Scalar_out": lambda a, b: np.fmod(a, _divisor(b)),
    "pow.Tensor_Tensor_out pow.Tensor_Scalar_out pow.Scalar_out": _power,
    "minimum.out": np.minimum,
    "maximum.out": np.maximum,
    "logical_and.out": np.logical_and,
    "logical_or.out": np.logical_or,
    "logical_xor.out": np.logical_xor,
    "bitwise_and.Tensor_out bitwise_and.Scalar_out": np.bitwise_and,
    "bitwise_or.Tensor_out bitwise_or.Scalar_out": np.bitwise_or,
    "bitwise_xor.Tensor_out bitwise_xor.Scalar_out": np.bitwise_xor,
    "bitwise_left_shift.Tensor_out bitwise_left_shift.Tensor_Scalar_out": np.left_shift,
    "bitwise_right_shift.Tensor_out bitwise_right_shift.Tensor_Scalar_out": np.right_shift,
}

for _name, _f in UNARY.items():
    elementwise(f"{_name}.out", _f, 1)
for _name, _f in FLOAT_UNARY.items():
    elementwise(f"{_name}.out", _f, 1, floats=True)
for _name, _g in BINARY.items():
    elementwise(_name, _g, 2)
for _name, _g in COMPARE.items():
    elementwise(f"{_name}.Tensor_out {_name}.Scalar_out", _g, 2)
    plain(f"executorch_prim::{_name}.Scalar", getattr(operator, _name), 2)
elementwise("div.out div.Scalar_out", np.true_divide, 2, floats=True)
elementwise("atan2.out", np.arctan2, 2, floats=True)

SYMBOLIC: Mapping[str, tuple[Callable[..., Any], int]] = {  # on Python numbers
    "add": (operator.add, 2),
    "ceil": (math.ceil, 1),
    "floordiv": (operator.floordiv, 2),
    "mod": (operator.mod, 2),
    "mul": (operator.mul, 2),
    "neg": (operator.neg, 1),
    "round": (round, 1),
    "sub": (operator.sub, 2),
    "sym_float": (float, 1),
    "sym_int": (int, 1),
    "sym_ite": (lambda condition, a, b: a if condition else b, 3),
    "sym_max": (max, 2),
    "sym_min": (min, 2),
    "sym_not": (operator.not_, 1),
    "truediv": (operator.truediv, 2),
    "trunc": (math.trunc, 1),
}
for _name, (_h, _count) in SYMBOLIC.items():
    plain(f"executorch_prim::{_name}.Scalar", _h, _count)


@kernel("add.out add.Scalar_out")
def add(a: Array, b: Any, alpha: Scalar) -> Any:
    left, right = common((a, b))
    return left + right if alpha == 1 else left + left.dtype.type(alpha) * right


@kernel("sub.out sub.Scalar_out")
def sub(a: Array, b: Any, alpha: Scalar) -> Any:
    left, right = common((a, b))
    return left - left.dtype.type(alpha) * right


@kernel("rsub.Scalar_out rsub.Tensor_out")
def rsub(a: Array, b: Any, alpha: Scalar) -> Any:
    left, right = common((a, b))
    return right - left.dtype.type(alpha) * left


@kernel("div.out_mode div.Scalar_mode_out")
def div_mode(a: Array, b: Any, mode: str | None) -> Any:
    left, right = common((a, b), floats=mode is None)
    if mode is None:
        return np.true_divide(left, right)
    return _truncated(left, right) if mode == "trunc" else np.floor_divide(left, _divisor(right))


@kernel("clamp.out clamp.Tensor_out hardtanh.out")
def clamp(x: Array, low: Any, high: Any) -> Any:
    value, least, most = common((x, low, high))
    value = value if low is None else np.maximum(value, least)
    return value if high is None else np.minimum(value, most)


@kernel("where.self_out")
def where(condition: Array, a: Array, b: Array) -> Any:
    left, right = common((a, b))
    return np.where(condition.astype(bool), left, right)


kernel("masked_fill.Scalar_out masked_fill.Tensor_out")(
    lambda x, mask, value: np.where(mask, np.asarray(value).astype(x.dtype), x)
)
kernel("fill.Scalar_out fill.Tensor_out")(lambda x, value: np.broadcast_to(np.asarray(value), x.shape))


@kernel("elu.out")
def elu(x: Array, alpha: Scalar, scale: Scalar, input_scale: Scalar) -> Any:
    (x,) = common((x,))
    return np.where(x > 0, x * scale, np.expm1(x * input_scale) * (alpha * scale))


@kernel("leaky_relu.out")
def leaky_relu(x: Array, slope: Scalar) -> Any:
    (x,) = common((x,))
    return np.where(x > 0, x, x * slope)


@kernel("softplus.out")
def softplus_(x: Array, beta: Scalar, threshold: Scalar) -> Any:
    (x,) = common((x,))
    return np.where(x * beta > threshold, x, softplus(x * beta) / beta)


@kernel("gelu.out")
def gelu(x: Array, approximate: str) -> Any:
    (x,) = common((x,))
    if approximate == "tanh":
        inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    else:
        inner = erf(x * math.sqrt(0.5))
    return 0.5 * x * (1 + inner)


@kernel("glu.out")
def glu(x: Array, dim: int) -> Any:
    (x,) = common((x,))
    left, right = np.split(x, 2, dim)
    return left * sigmoid(right)


@kernel("logit.out")
def logit(x: Array, eps: float | None) -> Any:
    (x,) = common((x,), floats=True)
    x = x if eps is None else np.clip(x, eps, 1 - eps)
    return np.log(x / (1 - x))


@kernel("rand.out")
def rand(dims: tuple[int, ...], *, out: Tensor) -> Array:
    return np.random.default_rng().random(fitting(dims, out))


@kernel("randn.out")
def randn(dims: tuple[int, ...], *, out: Tensor) -> Array:
    return np.random.default_rng().standard_normal(fitting(dims, out))


@kernel("native_dropout.out", outs=2)
def native_dropout(x: Array, p: float, train: bool | None) -> tuple[Any, Any]:
    if train is False or p == 0:
        return x, np.ones(x.shape, bool)
    kept = np.random.default_rng().random(x.shape) >= p
    return np.where(kept, x / (1 - p) if p < 1 else 0, 0), kept
