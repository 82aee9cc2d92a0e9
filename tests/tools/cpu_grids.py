# ruff: noqa: E501 (one line per kernel)
"""Arguments of every CPU kernel to try: dtypes, broadcasting, dims of size 0 and 1, options. Needs torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch

T = torch.Tensor
_SEED = torch.Generator().manual_seed(3)
F32, F16, F64 = torch.float32, torch.float16, torch.float64
I64, I32, I8, U8, B = torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool
DTYPES = (F32, F16, F64, I64, I32, I8, U8, B)
FLOATS = (F32, F16, F64)


def r(*dims: int, dtype: torch.dtype = F32, scale: float = 2.0, shift: float = 0.0) -> T:
    """Random numbers of any dtype."""
    x = torch.randn(dims, generator=_SEED) * scale + shift
    if dtype == B:
        return x > 0
    return x.abs().to(dtype) if dtype == U8 else x.to(dtype)


def ints(high: int, *dims: int, low: int = 0, dtype: torch.dtype = I64) -> T:
    return torch.randint(low, high, dims, generator=_SEED).to(dtype)


def unary() -> Iterable[tuple[Any, ...]]:
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, float("inf"), float("-inf"), float("nan"), 1e-3, 30])
    yield (special,)
    yield (special.half(),)
    for dtype, dims in itertools.product(DTYPES, ((3, 4), (), (0, 3))):
        yield (r(*dims, dtype=dtype),)


def pairs() -> Iterable[tuple[T, T]]:
    for a, b in itertools.product(DTYPES, DTYPES):
        yield r(2, 3, dtype=a, scale=4), r(3, dtype=b, scale=4)
    for a, b in itertools.product((F32, F16, I64, I32, B), (F64, F32, I64, B)):
        yield r(2, 3, dtype=a), r(dtype=b, shift=2)
    for a, b in (((), ()), ((2, 1), (1, 3)), ((0, 3), (3,)), ((0, 3), (1, 1)), ((1, 1, 2), (4, 3, 1))):
        yield r(*a), r(*b)


def scalars() -> Iterable[tuple[T, Any]]:
    for dtype, value in itertools.product(DTYPES, (2, -3, 2.5, True, -0.25)):
        yield r(2, 3, dtype=dtype, scale=4), value
    yield r(0, 3), 2
    yield r(), 2.5


def with_alpha(args: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, ...]]:
    for a, b in args:
        yield a, b, 1
        yield a, b, 2


def nonzero(args: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    for a, b in args:
        yield (a, torch.where(b == 0, torch.ones_like(b), b)) if isinstance(b, T) else (a, b)


def modes(args: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, ...]]:
    for a, b in nonzero(args):
        for mode in (None, "floor", "trunc"):
            yield a, b, mode


def reduced(*, lists: bool, none: bool = True) -> Iterable[tuple[Any, ...]]:
    """Tensor, dims, keepdim."""
    dims: list[Any] = [[1], [0, -1], []] if lists else [1, -1, 0]
    for dtype, dim, keep in itertools.product(DTYPES, dims + ([None] if none else []), (False, True)):
        yield r(2, 3, 4, dtype=dtype), dim, keep
    yield r(), [0] if lists else 0, True
    yield r(), [-1] if lists else -1, False
    yield r(0, 3), [1] if lists else 1, False
    yield r(0, 3), [0] if lists else 0, True


def then(args: Iterable[tuple[Any, ...]], *extra: Any) -> Iterable[tuple[Any, ...]]:
    for a in args:
        for tail in itertools.product(*extra):
            yield (*a, *tail)


def moved(*tails: tuple[Any, ...], dims: tuple[int, ...] = (2, 3, 4)) -> Iterable[tuple[Any, ...]]:
    """One tensor of several dtypes with each of these arguments."""
    for i, tail in enumerate(tails):
        for dtype in (F32, I64, B) if i == 0 else (F32,):
            yield (r(*dims, dtype=dtype), *tail)


UNARY = [
    "_conj_physical",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "hardsigmoid",
    "hardswish",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "mish",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "alias_copy",
    "detach_copy",
    "lift_fresh_copy",
]
GRIDS: dict[str, Callable[[], Iterable[tuple[Any, ...]]]] = {f"{name}.out": unary for name in UNARY}
for _name in ["minimum", "maximum", "logical_and", "logical_or", "logical_xor", "atan2", "mul"]:
    GRIDS[f"{_name}.out"] = pairs
for _name in ["eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor", "pow"]:
    GRIDS[f"{_name}.Tensor_out"] = pairs
    GRIDS[f"{_name}.Scalar_out"] = scalars
GRIDS["pow.Tensor_Tensor_out"] = GRIDS.pop("pow.Tensor_out")
GRIDS["pow.Tensor_Scalar_out"] = GRIDS.pop("pow.Scalar_out")
GRIDS["pow.Scalar_out"] = lambda: ((b, a) for a, b in scalars())
for _name in ("left", "right"):
    GRIDS[f"bitwise_{_name}_shift.Tensor_out"] = lambda: ((a, ints(5, 3)) for a, _ in pairs())
    GRIDS[f"bitwise_{_name}_shift.Tensor_Scalar_out"] = lambda: ((a, 2) for a, _ in pairs())
GRIDS |= {
    "mul.Scalar_out": scalars,
    "add.out": lambda: with_alpha(pairs()),
    "add.Scalar_out": lambda: with_alpha(scalars()),
    "sub.out": lambda: with_alpha(pairs()),
    "sub.Scalar_out": lambda: with_alpha(scalars()),
    "rsub.Scalar_out": lambda: with_alpha(scalars()),
    "rsub.Tensor_out": lambda: with_alpha(pairs()),
    "div.out": lambda: nonzero(pairs()),
    "div.Scalar_out": scalars,
    "div.out_mode": lambda: modes(pairs()),
    "div.Scalar_mode_out": lambda: modes(scalars()),
    "floor_divide.out": lambda: nonzero(pairs()),
    "fmod.Tensor_out": lambda: nonzero(pairs()),
    "fmod.Scalar_out": scalars,
    "remainder.Tensor_out": lambda: nonzero(pairs()),
    "remainder.Scalar_out": scalars,
    "where.self_out": lambda: ((r(2, 1, dtype=B), a, b) for a, b in pairs()),
    "clamp.out": lambda: ((r(2, 3, dtype=d, scale=4), *b) for d in DTYPES for b in ((-1, 2), (None, 1), (0.5, None), (2, 1))),
    "clamp.Tensor_out": lambda: ((r(2, 3, scale=4), a, b) for a in (None, r(3)) for b in (None, r(2, 1), r())),
    "hardtanh.out": lambda: ((r(2, 3, dtype=d, scale=4), -1, 2) for d in DTYPES),
    "masked_fill.Scalar_out": lambda: ((r(2, 3, dtype=d), r(3, dtype=B), v) for d in DTYPES for v in (2, -1.5, True)),
    "masked_fill.Tensor_out": lambda: ((r(2, 3, dtype=d), r(3, dtype=B), torch.tensor(3)) for d in DTYPES),
    "fill.Scalar_out": lambda: ((r(2, 3, dtype=d), v) for d in DTYPES for v in (2, 1.5)),
    "fill.Tensor_out": lambda: ((r(2, 3, dtype=d), torch.tensor(3)) for d in DTYPES),
    "elu.out": lambda: then(moved((), (), dims=(3, 4)), (1, 0.5), (1, 1.5), (1, 2)),
    "leaky_relu.out": lambda: ((r(2, 3, dtype=d), s) for d in FLOATS for s in (0.01, 2)),
    "softplus.out": lambda: ((r(2, 3, dtype=d, scale=20), b, 20) for d in FLOATS for b in (1, 2)),
    "gelu.out": lambda: ((r(2, 3, dtype=d), m) for d in FLOATS for m in ("none", "tanh")),
    "glu.out": lambda: ((r(2, 4, dtype=d), x) for d in FLOATS for x in (0, 1, -1)),
    "logit.out": lambda: ((torch.rand(2, 3, generator=_SEED).to(d), e) for d in FLOATS for e in (None, 0.2)),
    "native_dropout.out": lambda: ((r(2, 3), 0.5, False),),
    "amax.out": lambda: reduced(lists=True, none=False),
    "amin.out": lambda: reduced(lists=True, none=False),
    "max.unary_out": lambda: ((r(2, 3, dtype=d),) for d in DTYPES),
    "min.unary_out": lambda: ((r(2, 3, dtype=d),) for d in DTYPES),
    "any.out": lambda: reduced(lists=False, none=False),
    "all.out": lambda: reduced(lists=False, none=False),
    "any.dims_out": lambda: ((x, d, k) for x, d, k in reduced(lists=True) if d != []),
    "all.dims_out": lambda: ((x, d, k) for x, d, k in reduced(lists=True) if d != []),
    "any.all_out": lambda: ((r(2, 3, dtype=d),) for d in DTYPES),
    "all.all_out": lambda: ((r(2, 3, dtype=d),) for d in DTYPES),
    "sum.IntList_out": lambda: then(reduced(lists=True), (None, F32, I64)),
    "mean.out": lambda: then(reduced(lists=True), (None, F32)),
    "mean.dtype_out": lambda: ((r(2, 3, dtype=d), t) for d in DTYPES for t in (None, F64)),
    "prod.int_out": lambda: then(reduced(lists=False, none=False), (None, F32)),
    "prod.out": lambda: ((r(2, 3, dtype=d), t) for d in DTYPES for t in (None, F32)),
    "cumsum.out": lambda: then(((r(2, 3, dtype=d), x) for d in DTYPES for x in (0, -1)), (None, F32)),
    "cumprod.out": lambda: then(((r(2, 3, dtype=d), x) for d in DTYPES for x in (0, -1)), (None, F32)),
    "var.correction_out": lambda: ((x, d, c, k) for x, d, k in reduced(lists=True) for c in (None, 0, 1, 2.5)),
    "std.correction_out": lambda: ((x, d, c, k) for x, d, k in reduced(lists=True) for c in (None, 0)),
    "var.out": lambda: ((x, d, u, k) for x, d, k in reduced(lists=True) for u in (False, True)),
    "var_mean.correction_out": lambda: ((x, d, c, k) for x, d, k in reduced(lists=True) for c in (None, 0)),
    "argmax.out": lambda: reduced(lists=False),
    "argmin.out": lambda: reduced(lists=False),
    "max.dim_max": lambda: reduced(lists=False, none=False),
    "min.dim_min": lambda: reduced(lists=False, none=False),
    "sort.values": lambda: ((torch.randperm(12).reshape(3, 4).to(d), x, s) for d in (F32, I64, F16) for x in (0, -1) for s in (False, True)),
    "sort.values_stable": lambda: ((ints(3, 3, 8), True, x, s) for x in (0, -1) for s in (False, True)),
    "topk.values": lambda: ((torch.randperm(12).reshape(3, 4).to(d), k, x, g, True) for d in (F32, I64) for k, x in ((2, -1), (3, 0), (0, 1)) for g in (False, True)),
    "_softmax.out": lambda: ((r(2, 3, dtype=d), x, False) for d in FLOATS for x in (0, -1)),
    "_log_softmax.out": lambda: ((r(2, 3, dtype=d), x, False) for d in FLOATS for x in (0, -1)),
    "logsumexp.out": lambda: ((r(2, 3, 4), d, k) for d in ([1], [0, 2]) for k in (False, True)),
    "mm.out": lambda: ((r(3, k, dtype=d), r(k, 2, dtype=d)) for d in (F32, F16, F64, I64) for k in (4, 0)),
    "bmm.out": lambda: ((r(n, 3, 4, dtype=d), r(n, 4, 2, dtype=d)) for d in (F32, F16, I64) for n in (2, 0)),
    "addmm.out": lambda: ((c, r(3, 4), r(4, 2), b, a) for c in (r(2), r(3, 2), r(3, 1)) for b in (1, 0, 2) for a in (1, 0.5)),
    "baddbmm.out": lambda: ((r(2, 3, 2), r(2, 3, 4), r(2, 4, 2), b, a) for b in (1, 0) for a in (1, 0.5)),
    "linear.out": lambda: ((r(2, 3, 4, dtype=d), r(5, 4, dtype=d), b) for d in FLOATS for b in (None, r(5, dtype=d))),
    "_cdist_forward.out": lambda: ((r(2, 3, 4), r(2, 5, 4), p, None) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))),
    "_pdist_forward.out": lambda: ((r(4, 3), p) for p in (0.0, 1.0, 2.0, float("inf"))),
    "native_layer_norm.out": lambda: ((r(2, 3, 4, dtype=d), n, w, b, 1e-5) for d in (F32, F64) for n in ([4], [3, 4]) for w in (None, r(*n, dtype=d)) for b in (None, r(*n, dtype=d))),
    "native_group_norm.out": lambda: ((r(2, 4, *s), w, b, 2, 4, h, g, 1e-5) for s, h in (((3, 5), 15), ((6,), 6)) for g in (1, 2, 4) for w, b in ((None, None), (r(4), r(4)))),
    "_native_batch_norm_legit_no_training.out": lambda: ((r(2, 3, *s), w, b, r(3), r(3).abs() + 1, 0.1, 1e-5) for s in ((), (5,), (4, 5)) for w, b in ((None, None), (r(3), r(3)))),
    "_native_batch_norm_legit.out": lambda: ((r(2, 3, 4, 5), r(3), r(3), r(3), r(3).abs() + 1, False, 0.1, 1e-5),),
    "_native_batch_norm_legit.no_stats_out": lambda: ((r(2, 3, *s), w, b, True, 0.1, 1e-5) for s in ((5,), (4, 5)) for w, b in ((None, None), (r(3), r(3)))),
    "view_copy.out": lambda: [*moved(([6, 4],), ([-1],), ([2, 1, -1, 2],)), (r(0, 3), [3, 0])],
    "unsqueeze_copy.out": lambda: moved((0,), (-1,), (2,)),
    "squeeze_copy.dim_out": lambda: moved((0,), (1,), (-1,), dims=(1, 3, 1)),
    "squeeze_copy.dims_out": lambda: moved(([0],), ([0, 1, 2],), ([-1],), dims=(1, 3, 1)),
    "permute_copy.out": lambda: moved(([2, 0, 1],), ([0, -1, 1],)),
    "transpose_copy.int_out": lambda: moved((0, 1), (-1, 0)),
    "t_copy.out": lambda: moved((), dims=(2, 3)),
    "clone.out": lambda: moved((None,)),
    "copy.out": lambda: ((r(2, 3, dtype=a), r(3, dtype=b), False) for a in (F32, I64) for b in (F32, I64, B)),
    "copy_": lambda: ((r(2, 3, dtype=a), r(3, dtype=b), False) for a in (F32, I64) for b in (F32, I64, B)),
    "cat.out": lambda: ((x, d) for x, d in (([r(2, 3), r(2, 1)], 1), ([r(2, 3), r(1, 3, dtype=F64)], 0), ([torch.zeros(0), r(2, 3)], -1), ([r(0, 3), r(2, 3)], 0), ([ints(5, 2), r(2)], 0))),
    "stack.out": lambda: (([r(2, 3), r(2, 3)], d) for d in (0, 1, -1)),
    "flip.out": lambda: moved(([0],), ([0, -1],), ([],)),
    "roll.out": lambda: moved(([1], [0]), ([-2, 3], [1, 2]), ([5], [])),
    "diagonal_copy.out": lambda: moved((0, 0, 1), (1, 0, 2), (-1, -1, 0)),
    "tril.out": lambda: moved((0,), (1,), (-2,)),
    "triu.out": lambda: moved((0,), (1,), (-2,)),
    "nonzero.out": lambda: ((r(2, 3, dtype=d).floor() if d in FLOATS else r(2, 3, dtype=d),) for d in DTYPES),
    "masked_select.out": lambda: ((r(2, 3), m) for m in (r(2, 3, dtype=B), r(3, dtype=B))),
    "repeat_interleave.Tensor_out": lambda: ((torch.tensor(x), None) for x in ([2, 0, 3], [1], [0, 0])),
    "split_copy.Tensor_out": lambda: moved((2, 1), (3, -1), (4, 2), dims=(2, 5, 4)),
    "split_with_sizes_copy.out": lambda: moved(([2, 3], 1), ([1, 0, 3], -1), dims=(2, 5, 4)),
    "unbind_copy.int_out": lambda: moved((0,), (-1,)),
    "full.out": lambda: (([2, 3], 2.5), ([0, 3], 1.0), ([], -1.5)),
    "full_like.out": lambda: ((r(2, 3, dtype=d), v, None) for d in DTYPES for v in (3, 1.5)),
    "zeros.out": lambda: (([2, 3],), ([],), ([0],)),
    "ones.out": lambda: (([2, 3],), ([],), ([0],)),
    "zeros_like.out": lambda: moved((None,)),
    "ones_like.out": lambda: moved((None,)),
    "scalar_tensor.out": lambda: ((2.5,), (-1.0,)),
    "arange.out": lambda: ((5,), (2.5,), (0,)),
    "arange.start_out": lambda: ((1, 7, 2), (0.5, 3.0, 0.25), (5, 0, -1), (3, 3, 1)),
    "expand_copy.out": lambda: moved(([2, 4, 3], False), ([-1, 5, -1], False), ([6, 2, 1, 3], False), dims=(2, 1, 3)),
    "repeat.out": lambda: moved(([1, 2, 3],), ([2, 1, 1, 2],), ([1, 0, 1],)),
    "as_strided_copy.out": lambda: moved(([2, 2], [1, 3], None), ([3, 4], [4, 1], 2), ([2, 3, 2], [0, 2, 5], 1), ([], [], 4)),
    "slice_copy.Tensor_out": lambda: moved((1, 0, 2, 1), (2, None, None, 2), (-1, -3, 100, 1), (0, 1, 1, 1), (1, -100, 2, 1)),
    "slice_scatter.out": lambda: ((r(2, 5), r(2, n), 1, a, b, s) for a, b, s, n in ((0, 2, 1, 2), (None, None, 2, 3), (-3, 100, 1, 3))),
    "narrow_copy.out": lambda: moved((1, 0, 2), (2, 1, 3), (-1, -2, 1)),
    "select_copy.int_out": lambda: moved((1, 0), (2, -1), (-1, 2)),
    "select_scatter.out": lambda: ((r(2, 3), r(2), 1, 2), (r(2, 3), r(3), 0, -1)),
    "unfold_copy.out": lambda: moved((2, 2, 1), (1, 3, 1), (-1, 2, 2)),
    "constant_pad_nd.out": lambda: moved(([1, 2], 0), ([1, 0, 2, 1], 3), ([-1, 2], 0), ([0, 0, 1, 1, 2, 0], -1)),
    "reflection_pad1d.out": lambda: moved(([1, 2],), ([3, 0],)),
    "reflection_pad2d.out": lambda: moved(([1, 2, 1, 0],), ([0, 3, 2, 2],)),
    "reflection_pad3d.out": lambda: moved(([1, 2, 1, 0, 1, 1],), dims=(2, 2, 3, 4)),
    "replication_pad1d.out": lambda: moved(([1, 2],), ([5, 0],)),
    "replication_pad2d.out": lambda: moved(([1, 2, 1, 0],), ([0, 5, 4, 2],)),
    "replication_pad3d.out": lambda: moved(([1, 2, 1, 0, 1, 1],), dims=(2, 2, 3, 4)),
    "pixel_shuffle.out": lambda: ((r(2, 8, 2, 3), 2), (r(9, 2, 2), 3)),
    "pixel_unshuffle.out": lambda: ((r(2, 2, 4, 6), 2), (r(1, 6, 3), 3)),
    "index_select.out": lambda: ((r(4, 3), d, ints(3, 5, dtype=t)) for d in (0, 1, -1) for t in (I64, I32)),
    "embedding.out": lambda: ((r(6, 3), ints(6, *s, dtype=t), -1, False, False) for s in ((2, 4), (), (0,)) for t in (I64, I32)),
    "index.Tensor_out": lambda: ((r(4, 3, 2), i) for i in ([ints(4, 5)], [None, ints(3, 2, 2)], [ints(4, 2), None, ints(2, 2)], [ints(4, 2, 1), ints(3, 3)], [torch.tensor([-1, 0])], [r(4, dtype=B)])),
    "index_put.out": lambda: ((r(4, 3), [torch.tensor([1, 3])], v, a) for v in (r(2, 3), r(3), r()) for a in (False, True)),
    "index_put_": lambda: ((r(4, 3), [torch.tensor([1, 1])], r(3), True), (r(4, 3), [None, torch.tensor([2])], r(4, 1), False)),
    "gather.out": lambda: ((r(4, 3), d, ints(3, *s), False) for d in (0, 1, -1) for s in ((4, 3), (2, 2), (1, 3), (0, 3))),
    "scatter.value_out": lambda: ((r(4, 3, dtype=t), d, i, 2) for t in (F32, I64) for d, i in ((0, ints(4, 2, 3)), (1, torch.tensor([[2, 0], [1, 2]])))),
    "scatter.src_out": lambda: ((r(4, 3), d, i, r(4, 3)) for d, i in ((0, torch.tensor([[3, 0, 1]])), (1, torch.tensor([[2, 0], [1, 2]])))),
    "scatter_add.out": lambda: ((r(4, 3), d, ints(3, 2, 3), r(4, 3)) for d in (0, 1)),
    "scatter_reduce.two_out": lambda: (
        (r(4, 3, dtype=t), d, i, r(4, 3, dtype=t), how, own)
        for t in (F32, F16, I64)
        for d, i in ((0, ints(4, 2, 3)), (1, torch.tensor([[2, 0, 2], [1, 2, 1]])), (0, torch.zeros(0, 3, dtype=I64)))
        for how in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    ),
    "col2im.out": lambda: ((r(*n, 2 * k[0] * k[1], c), [5, 6], list(k), [d, d], [p, p], [s, s]) for n in ((2,), ()) for k, d, p, s, c in (((2, 3), 1, 0, 1, 16), ((2, 2), 1, 1, 2, 12), ((2, 2), 2, 1, 1, 30), ((1, 3), 1, 0, 3, 4))),
    "masked_scatter.out": lambda: ((r(2, 3), m, r(9)) for m in (r(2, 3, dtype=B), r(3, dtype=B))),
    "convolution.out": lambda: (
        (r(2, 4, *s), r(*(w if not t else (4, w[0] // g if g > 1 else w[0], *w[2:]))), b, [st], [p], [di], t, [0], g)
        for s, w in (((7, 8), (6, 4, 3, 2)), ((9,), (6, 4, 3)))
        for st, p, di, g in ((1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (2, 1, 1, 2))
        for t in (False, True)
        for b in (None, r(6))
        for w in [(w[0], w[1] // g, *w[2:])]
    ),
    "convolution_backward.out": lambda: (
        (r(2, 6, *o), r(2, 4, *s), r(6, 4 // g, *k), [6], st, p, di, False, [0] * len(s), g, [True, True, True])
        for s, k, o, st, p, di, g in (
            ((7, 8), (3, 2), (5, 7), [1, 1], [0, 0], [1, 1], 1),
            ((7, 8), (3, 3), (4, 4), [2, 2], [1, 1], [1, 1], 2),
            ((9,), (3,), (9,), [1], [2], [2], 1),
        )
    ),
    "max_pool2d_with_indices.out": lambda: ((torch.randperm(210).reshape(2, 3, 5, 7).to(d), k, s, p, g, c) for d in (F32, I64) for k, s, p, g in (([2, 2], [], [0, 0], [1, 1]), ([3, 2], [2, 1], [1, 1], [1, 1]), ([2], [2], [1], [2])) for c in (False, True)),
    "max_pool3d_with_indices.out": lambda: ((torch.randperm(210).reshape(1, 2, 3, 5, 7).float(), [2, 2, 2], [1, 2, 2], [0, 1, 0], [1, 1, 1], c) for c in (False, True)),
    "max_pool2d_with_indices_backward.grad_input": lambda: ((r(1, 2, 2, 3), x, [2, 2], [2, 2], [0, 0], [1, 1], False, torch.ops.aten.max_pool2d_with_indices(x, [2, 2])[1]) for x in (r(1, 2, 4, 6),)),
    "avg_pool2d.out": lambda: ((r(2, 3, 5, 7), k, s, p, c, i, d) for k, s, p in (([2, 2], [], [0, 0]), ([3, 2], [2, 1], [1, 1]), ([3, 3], [2, 2], [1, 1])) for c in (False, True) for i in (False, True) for d in (None, 5)),
    "avg_pool3d.out": lambda: ((r(1, 2, 3, 5, 7), [2, 2, 2], [], [0, 0, 0], False, True, None),),
    "avg_pool1d.out": lambda: ((r(2, 3, 7), [2], [2], [1], c, i) for c in (False, True) for i in (False, True)),
    "_adaptive_avg_pool2d.out": lambda: ((r(2, 3, 5, 7), d) for d in ([1, 1], [2, 3], [5, 7], [6, 9])),
    "_adaptive_avg_pool3d.out": lambda: ((r(1, 2, 4, 5, 7), [2, 2, 3]),),
    "adaptive_avg_pool1d.out": lambda: ((r(2, 3, 7), [3]),),
    "upsample_nearest1d.out": lambda: ((r(1, 2, 5), [7], None), (r(1, 2, 5), [10], 2.0)),
    "upsample_nearest2d.out": lambda: ((r(1, 2, 5, 6), [7, 4], None, None), (r(1, 2, 5, 6), [7, 9], 1.5, 1.5)),
    "upsample_nearest2d.vec_out": lambda: ((r(1, 2, 5, 6), [7, 4], None), (r(1, 2, 5, 6), None, [1.5, 2.0])),
    "upsample_linear1d.out": lambda: ((r(1, 2, 5), [7], a, s) for a in (False, True) for s in (None, 1.5)),
    "upsample_bilinear2d.out": lambda: ((r(1, 2, 5, 6), [7, 4], a, None, None) for a in (False, True)),
    "upsample_bilinear2d.vec_out": lambda: ((r(1, 2, 5, 6), *s) for a in (False, True) for s in (([7, 4], a, None), (None, a, [1.5, 2.0]), ([1, 1], a, None))),
    "upsample_bicubic2d.out": lambda: ((r(1, 2, 5, 6), [7, 4], a, None, None) for a in (False, True)),
    "_upsample_bilinear2d_aa.out": lambda: ((r(1, 2, 8, 9), d, a, None, None) for d in ([3, 4], [12, 5]) for a in (False, True)),
    "grid_sampler_2d.out": lambda: ((r(2, 3, 5, 6), r(2, 4, 3, 2, scale=0.8), m, p, a) for m in (0, 1, 2) for p in (0, 1, 2) for a in (False, True)),
    "quantized_decomposed::quantize_per_tensor.out": lambda: ((r(3, 4, scale=10), 0.1, 3, -128, 127, I8), (r(3, 4, scale=10), 0.07, 128, 0, 255, U8)),
    "quantized_decomposed::dequantize_per_tensor.out": lambda: ((ints(127, 3, 4, low=-128, dtype=I8), 0.1, 3, -128, 127, I8),),
    "quantized_decomposed::quantize_per_channel.out": lambda: ((r(3, 4, scale=10), r(3).abs() / 9 + 0.1, ints(5, 3), a, -128, 127, I8) for a in (0, 0)),
    "quantized_decomposed::dequantize_per_channel.out": lambda: ((ints(127, 3, 4, low=-128, dtype=I8), r(4).abs() + 0.1, z, 1, -128, 127, I8) for z in (ints(5, 4), None)),
    "quantized_decomposed::quantize_per_token.out": lambda: ((r(2, 3, 4, scale=10), r(2, 3, 1).abs() / 9 + 0.1, ints(5, 2, 3, 1), -128, 127, I8),),
    "quantized_decomposed::dequantize_per_token.out": lambda: ((ints(127, 2, 3, 4, low=-128, dtype=I8), r(2, 3, 1).abs() + 0.1, ints(5, 2, 3, 1), -128, 127, I8, F32),),
    "quantized_decomposed::choose_qparams_per_token_asymmetric.out": lambda: ((r(2, 3, 8, scale=s), I8) for s in (1, 20)),
    "quantized_decomposed::choose_qparams.Tensor_out": lambda: ((r(3, 8, scale=s, shift=h), -128, 127, 1e-6, I8) for s, h in ((1, 0), (5, 9), (5, -40))),
    "quantized_decomposed::embedding_byte.out": lambda: ((ints(127, 6, 8, low=-128, dtype=I8), s, None, -128, 127, ints(6, 2, 3)) for s in (r(6).abs(), r(6, 2).abs())),
    "quantized_decomposed::embedding_4bit.out": lambda: ((ints(256, 6, 4, dtype=U8), s, None, -8, 7, ints(6, 2, 3)) for s in (r(6).abs(), r(6, 2).abs())),
    "quantized_decomposed::embedding_2bit.out": lambda: ((ints(256, 6, 2, dtype=U8), r(6, 2).abs(), None, -2, 1, ints(6, 2, 3)),),
}  # fmt: skip
