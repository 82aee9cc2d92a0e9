"""What compare_with_torch.py tries: for every op, the same op of PyTorch, and data and attributes to call both with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

aten = torch.ops.aten
Torch = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
Trial = tuple[Mapping[str, Any], Mapping[str, Any]]  # arrays by name, attributes
RNG = np.random.default_rng(3)
SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -0.5, 2.5, -1.5, 3, 100, -100, np.inf, -np.inf, np.nan], np.float32)
WHOLE = ("int32", "int8", "uint8")


def floats(*dims: int, special: bool = False) -> Any:
    x = (RNG.standard_normal(dims) * 3).astype(np.float32)
    if special:
        x.reshape(-1)[: SPECIAL.size] = SPECIAL[: x.size]
    return x


def whole(dtype: str, *dims: int) -> Any:
    if dtype == "bool":
        return RNG.integers(0, 2, dims).astype(bool)
    info = np.iinfo(dtype)
    return RNG.integers(max(info.min, -1000), min(info.max, 1000), dims).astype(dtype)


def of(dtype: str, *dims: int) -> Any:
    return floats(*dims, special=True) if dtype == "float32" else whole(dtype, *dims)


def product(**values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    for row in itertools.product(*values.values()):
        yield dict(zip(values, row, strict=True))


def unary(dtypes: tuple[str, ...] = ("float32",)) -> list[Trial]:
    return [({"x": of(d, *dims)}, {}) for d in dtypes for dims in ((3, 8), (5, 7), ())]


def binary(dtypes: tuple[str, ...], **attrs: tuple[Any, ...]) -> list[Trial]:
    pairs = [(d, d) for d in dtypes] + ([("int32", "float32"), ("float32", "int32")] if len(dtypes) > 1 else [])
    shapes = (((3, 8), (3, 8)), ((5, 1, 7), (3, 1)), ((), (4,)))
    return [
        ({"a": of(x, *s), "b": of(y, *z)}, extra) for x, y in pairs for s, z in shapes for extra in product(**attrs)
    ]


def scalar(dtypes: tuple[str, ...], **attrs: tuple[Any, ...]) -> list[Trial]:
    return [({"x": of(d, 4, 9)}, extra) for d in dtypes for extra in product(**attrs)]


ANY = ("float32", "int32", "int8", "uint8", "bool")
NUM = ("float32", *WHOLE)


def named(op: Any, *names: str) -> Torch:
    """The torch op with its arguments by our names, in order."""
    return lambda t, a: op(*(t[n] if n in t else a.get(n) for n in names))


def image() -> Any:
    return floats(2, 3, 7, 9)


def convolutions() -> list[Trial]:
    found: list[Trial] = []
    pairs = {"stride": ((1, 1), (2, 3)), "padding": ((0, 0), (1, 2)), "dilation": ((1, 1), (2, 1))}
    for g in product(
        **pairs, out_padding=((0, 0), (1, 0)), groups=(1, 2), transposed=(False, True), bias=(False, True)
    ):
        bias, turned = g.pop("bias"), g["transposed"]
        channels = 3 * g["groups"] if turned else 6
        w = floats(4, 3, 3, 2) if turned else floats(6, 4 // g["groups"], 3, 2)
        if turned or not any(g["out_padding"]):
            found.append(({"x": floats(2, 4, 8, 9), "w": w} | ({"bias": floats(channels)} if bias else {}), g))
    for stride, padding, groups in itertools.product((1, 2), (0, 2), (1, 4)):
        attrs = {"stride": (stride,), "padding": (padding,), "dilation": (1,), "groups": groups, "transposed": False}
        found.append(({"x": floats(1, 4, 11), "w": floats(8, 4 // groups, 3)}, {**attrs, "out_padding": (0,)}))
    return found


def resizes(**more: tuple[Any, ...]) -> list[Trial]:
    scales = (0.5, 0.37, 0.9, 1.0, 1.1, 1.5, 2.0, 2.6, 3.0)
    found = [({"x": floats(1, 2, 8, 9)}, {"size": None, "scales": (y, x), **m})
             for y, x in itertools.product(scales, scales) for m in product(**more)]  # fmt: skip
    sizes = ((1, 1), (3, 4), (8, 9), (16, 18), (5, 23), (13, 27))
    return found + [
        ({"x": floats(1, 2, 8, 9)}, {"size": s, "scales": None, **m}) for s in sizes for m in product(**more)
    ]


def pools(**more: tuple[Any, ...]) -> list[Trial]:
    grid = product(
        kernel=((2,), (3, 2)), stride=((), (1,), (2, 3)), padding=((0,), (1,), (1, 0)), ceil=(False, True), **more
    )
    return [({"x": floats(2, 7, 9) if i % 3 else image()}, g) for i, g in enumerate(grid)]


def reductions(dtypes: tuple[str, ...]) -> list[Trial]:
    dims = (None, (), (0,), (-1,), (0, 2), (1, -1), (0, 1, 2))
    return [({"x": of(d, 3, 5, 7)}, g) for d in dtypes for g in product(dims=dims, keep=(False, True))]


def lists(t: Mapping[str, Any], name: str, a: Mapping[str, Any]) -> list[Any]:
    return [t[f"{name}{i}"] if on else None for i, on in enumerate(a[name])]


def slices() -> list[Trial]:
    ends = (None, -20, -3, 0, 2, 6, 20, 2**63 - 1)
    grid = product(dim=(0, 1, -1), start=ends[:-1], end=ends, step=(1, 2, 5))
    return [({"x": floats(4, 6, 5)}, g) for g in grid]


def indices() -> list[Trial]:
    found: list[Trial] = []
    for place, dims in itertools.product(range(3), ((4,), (2, 3), ())):
        at = tuple(i == place for i in range(place + 1))
        found.append(({"table": floats(5, 6, 7), f"at{place}": RNG.integers(-5, 5, dims).astype(np.int64)}, {"at": at}))
    return found


def bounds(t: Mapping[str, Any], a: Mapping[str, Any]) -> Any:
    return aten.clamp.default(t["x"], a["low"], a["high"])


GRIDS: Mapping[str, tuple[Torch, list[Trial]]] = {
    **{
        f"aten.{n}.default": (named(getattr(aten, n).default, "x"), unary())
        for n in (
            "sigmoid",
            "tanh",
            "hardswish",
            "rsqrt",
            "sqrt",
            "log",
            "exp",
            "sin",
            "cos",
            "floor",
            "ceil",
            "round",
            "silu",
        )
    },
    **{f"aten.{n}.default": (named(getattr(aten, n).default, "x"), unary(NUM)) for n in ("relu", "abs", "neg")},
    "aten.logical_not.default": (named(aten.logical_not.default, "x"), unary(ANY)),
    "aten.bitwise_not.default": (named(aten.bitwise_not.default, "x"), unary(ANY[1:])),
    **{
        f"aten.{n}.Tensor": (
            lambda t, a, n=n: getattr(aten, n).Tensor(t["a"], t["b"], alpha=a["alpha"]),
            binary(ANY if n == "add" else NUM, alpha=(1, 2, -3)),
        )
        for n in ("add", "sub")
    },
    **{
        f"aten.{n}.Tensor": (named(getattr(aten, n).Tensor, "a", "b"), binary(ANY))
        for n in ("mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
    },
    **{
        f"aten.{n}.default": (named(getattr(aten, n).default, "a", "b"), binary(ANY))
        for n in ("minimum", "maximum", "logical_and", "logical_or")
    },
    **{
        f"aten.bitwise_{n}.Tensor": (named(getattr(aten, f"bitwise_{n}").Tensor, "a", "b"), binary(ANY[1:])[: 4 * 3])
        for n in ("and", "or")
    },
    "aten.div.Tensor_mode": (
        lambda t, a: aten.div.Tensor_mode(t["a"], t["b"] + (t["b"] == 0), rounding_mode=a["mode"]),
        binary(NUM, mode=(None, "floor", "trunc")),
    ),
    "aten.pow.Tensor_Tensor": (
        named(aten.pow.Tensor_Tensor, "a", "b"),
        [*binary(("float32",)), ({"a": SPECIAL[:, None] + 0, "b": SPECIAL + 0}, {})],
    ),
    "aten.pow.Tensor_Scalar": (
        named(aten.pow.Tensor_Scalar, "x", "value"),
        scalar(("float32",), value=(-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5, 7)),
    ),
    **{
        f"aten.{n}.Scalar": (named(getattr(aten, n).Scalar, "x", "value"), scalar(ANY, value=(0, 1, -1, 0.5, 100)))
        for n in ("eq", "ne", "lt", "le", "gt", "ge", "mul")
    },
    "aten.div.Scalar": (named(aten.div.Scalar, "x", "value"), scalar(ANY, value=(1, -1, 0.5, 100))),
    **{
        f"aten.{n}.Scalar": (
            named(getattr(aten, n).Scalar, "x", "value", "alpha"),
            scalar(NUM, value=(0, -2, 0.5, 100), alpha=(1, 3)),
        )
        for n in ("add", "sub")
    },
    "aten.clamp.default": (
        bounds,
        [
            x
            for x in scalar(NUM, low=(None, -2, 0.5, 5), high=(None, -4, 3, 2.5))
            if (x[1]["low"], x[1]["high"]) != (None, None)
        ],
    ),
    "aten.hardtanh.default": (
        named(aten.hardtanh.default, "x", "low", "high"),
        scalar(("float32",), low=(-1, 0), high=(1, 6.0)),
    ),
    "aten.leaky_relu.default": (
        named(aten.leaky_relu.default, "x", "value"),
        scalar(("float32",), value=(0, 0.01, 2, -1)),
    ),
    "aten.gelu.default": (
        lambda t, a: aten.gelu.default(t["x"], approximate=a["approximate"]),
        [({"x": floats(4, 9)}, {"approximate": k}) for k in ("none", "tanh")],
    ),
    "aten._to_copy.default": (
        lambda t, a: t["x"].to(getattr(torch, a["out"])),
        [({"x": floats(4, 9) if d == "float32" else whole(d, 4, 9)}, {"out": o}) for d in ANY for o in ANY],
    ),
    "aten.view_copy.default": (
        named(aten.view_copy.default, "x", "dims"),
        [({"x": floats(4, 6)}, {"dims": d}) for d in ((24,), (-1, 3), (2, -1, 4), (8, 3))],
    ),
    "aten.squeeze_copy.dims": (
        named(aten.squeeze_copy.dims, "x", "dims"),
        [({"x": floats(1, 3, 1, 5)}, {"dims": d}) for d in ((0,), (2,), (-2,), (0, 2), (1,), ())],
    ),
    "aten.unsqueeze_copy.default": (
        named(aten.unsqueeze_copy.default, "x", "dim"),
        [({"x": floats(3, 5)}, {"dim": d}) for d in range(-3, 3)],
    ),
    "aten.slice_copy.Tensor": (named(aten.slice_copy.Tensor, "x", "dim", "start", "end", "step"), slices()),
    "aten.select_copy.int": (
        named(aten.select_copy.int, "x", "dim", "index"),
        [({"x": floats(4, 6, 5)}, g) for g in product(dim=(0, 1, 2, -1, -3), index=(0, 3, -1, -4))],
    ),
    "aten.permute_copy.default": (
        named(aten.permute_copy.default, "x", "order"),
        [({"x": floats(2, 3, 4)}, {"order": o}) for o in itertools.permutations((0, 1, -1))],
    ),
    "aten.expand_copy.default": (
        named(aten.expand_copy.default, "x", "dims"),
        [({"x": floats(3, 1)}, {"dims": d}) for d in ((3, 4), (-1, 5), (2, 3, 1), (2, -1, 6))],
    ),
    "aten.cat.default": (
        lambda t, a: aten.cat.default(lists(t, "xs", a), a["dim"]),
        [
            ({"xs0": floats(*((2, 3) if d % 2 else (4, 5))), "xs1": floats(2, 5)}, {"xs": (True, True), "dim": d})
            for d in (0, 1, -1, -2)
        ],
    ),
    "aten.flip.default": (
        named(aten.flip.default, "x", "dims"),
        [({"x": floats(2, 3, 4)}, {"dims": d}) for d in ((0,), (-1,), (0, 2), (0, 1, 2), ())],
    ),
    "aten.repeat.default": (
        named(aten.repeat.default, "x", "times"),
        [({"x": floats(2, 3)}, {"times": d}) for d in ((1, 2), (3, 1), (2, 1, 2), (0, 2))],
    ),
    "aten.pixel_shuffle.default": (
        named(aten.pixel_shuffle.default, "x", "factor"),
        [({"x": floats(*d)}, {"factor": r}) for d, r in (((8, 2, 3), 2), ((2, 9, 2, 2), 3), ((1, 2, 2), 1))],
    ),
    "aten.constant_pad_nd.default": (
        named(aten.constant_pad_nd.default, "x", "pads", "value"),
        [
            ({"x": of(d, 4, 5)}, g)
            for d in ANY
            for g in product(pads=((1, 2), (0, 1, 2, 0), (-1, 2), (1, -2, -1, 0)), value=(0, 1, 3))
        ],
    ),
    "aten.split_with_sizes_copy.default": (
        named(aten.split_with_sizes_copy.default, "x", "sizes", "dim"),
        [
            ({"x": floats(4, 6)}, {"sizes": s, "dim": d})
            for s, d in (((1, 3), 0), ((2, 4), 1), ((6,), -1), ((0, 4), -2))
        ],
    ),
    "aten.embedding.default": (
        named(aten.embedding.default, "table", "index"),
        [({"table": floats(7, 5), "index": RNG.integers(0, 7, d)}, {}) for d in ((3,), (2, 4), (0,))],
    ),
    "aten.index.Tensor": (lambda t, a: aten.index.Tensor(t["table"], lists(t, "at", a)), indices()),
    "aten.index_select.default": (
        named(aten.index_select.default, "table", "dim", "index"),
        [
            ({"table": floats(4, 5, 6), "index": RNG.integers(0, 4, n)}, {"dim": d})
            for d in (0, 1, 2, -1, -3)
            for n in (1, 3)
        ],
    ),
    "aten.upsample_nearest2d.vec": (named(aten.upsample_nearest2d.vec, "x", "size", "scales"), resizes()),
    "aten.upsample_bilinear2d.vec": (
        named(aten.upsample_bilinear2d.vec, "x", "size", "corners", "scales"),
        resizes(corners=(False, True)),
    ),
    "aten.grid_sampler_2d.default": (
        named(aten.grid_sampler_2d.default, "x", "grid", "mode", "padding", "corners"),
        [
            ({"x": image(), "grid": RNG.uniform(-1.5, 1.5, (2, 4, 5, 2)).astype(np.float32)}, g)
            for g in product(mode=(0, 1, 2), padding=(0, 1, 2), corners=(False, True))
        ],
    ),
    "aten.linear.default": (
        named(aten.linear.default, "x", "w", "bias"),
        [
            ({"x": floats(*d, 7), "w": floats(5, 7)} | b, {})
            for d in ((3,), (2, 3), (1, 1))
            for b in ({}, {"bias": floats(5)})
        ],
    ),
    "aten.bmm.default": (named(aten.bmm.default, "a", "b"), [({"a": floats(3, 4, 5), "b": floats(3, 5, 2)}, {})]),
    "aten.mm.default": (named(aten.mm.default, "a", "b"), [({"a": floats(4, 5), "b": floats(5, 2)}, {})]),
    "aten.addmm.default": (
        lambda t, a: aten.addmm.default(t["c"], t["a"], t["b"], beta=a["beta"], alpha=a["alpha"]),
        [
            ({"c": floats(*d), "a": floats(4, 5), "b": floats(5, 3)}, g)
            for d in ((3,), (4, 1), (4, 3), ())
            for g in product(beta=(0, 1, 0.5), alpha=(1, 2, 0))
        ],
    ),
    "aten.convolution.default": (
        named(
            aten.convolution.default,
            "x",
            "w",
            "bias",
            "stride",
            "padding",
            "dilation",
            "transposed",
            "out_padding",
            "groups",
        ),
        convolutions(),
    ),
    "aten.native_layer_norm.default": (
        named(aten.native_layer_norm.default, "x", "shape", "weight", "bias", "eps"),
        [
            ({"x": floats(3, 5, 7)} | p, {"shape": s, "eps": e})
            for s in ((7,), (5, 7))
            for p in ({}, {"weight": floats(*s)}, {"weight": floats(*s), "bias": floats(*s)})
            for e in (1e-5, 0.1)
        ],
    ),
    "aten.native_group_norm.default": (
        lambda t, a: aten.native_group_norm.default(
            t["x"],
            t.get("weight"),
            t.get("bias"),
            t["x"].shape[0],
            t["x"].shape[1],
            t["x"][0, 0].numel(),
            a["groups"],
            a["eps"],
        ),
        [
            ({"x": floats(*d)} | p, {"groups": g, "eps": 1e-5})
            for d in ((2, 6, 5), (1, 6, 3, 4))
            for g in (1, 2, 6)
            for p in ({}, {"weight": floats(6), "bias": floats(6)})
        ],
    ),
    "aten._native_batch_norm_legit_no_training.default": (
        lambda t, a: aten._native_batch_norm_legit_no_training.default(
            t["x"], t.get("weight"), t.get("bias"), t["mean"], t["var"], 0.1, a["eps"]
        ),
        [
            ({"x": floats(*d), "mean": floats(6), "var": np.abs(floats(6))} | p, {"eps": e})
            for d in ((3, 6), (2, 6, 5), (1, 6, 3, 4))
            for e in (1e-5, 0.1)
            for p in ({}, {"weight": floats(6), "bias": floats(6)})
        ],
    ),
    "aten.avg_pool2d.default": (
        named(aten.avg_pool2d.default, "x", "kernel", "stride", "padding", "ceil", "include", "divisor"),
        pools(include=(False, True), divisor=(None, 3)),
    ),
    "aten.max_pool2d_with_indices.default": (
        named(aten.max_pool2d_with_indices.default, "x", "kernel", "stride", "padding", "dilation", "ceil"),
        pools(dilation=((1,), (2, 1))),
    ),
    **{
        f"aten.{n}.default": (
            lambda t, a, n=n: getattr(aten, n).default(t["x"], a["dims"] or (), a["keep"]),
            reductions(NUM),
        )
        for n in ("amax", "amin")
    },
    "aten.sum.dim_IntList": (named(aten.sum.dim_IntList, "x", "dims", "keep"), reductions(ANY)),
    "aten.mean.dim": (named(aten.mean.dim, "x", "dims", "keep"), reductions(("float32",))),
    **{
        f"aten.{n}.default": (
            named(getattr(aten, n).default, "x", "dim", "keep"),
            [
                ({"x": x}, g)
                for x in (floats(3, 5, 7), floats(3, 5, 7, special=True))
                for g in product(dim=(None, 0, 1, -1), keep=(False, True))
            ],
        )
        for n in ("argmax", "argmin")
    },
    **{
        f"aten.{n}.default": (
            lambda t, a, n=n: getattr(aten, n).default(t["x"], a["dim"], False),
            [({"x": floats(3, 5, 7) * k}, {"dim": d}) for k in (1, 300) for d in (0, 1, 2, -1, -3)],
        )
        for n in ("_softmax", "_log_softmax")
    },
    "aten.where.self": (
        named(aten.where.self, "cond", "a", "b"),
        [
            ({"cond": whole("bool", *c), "a": of(d, *x), "b": of(d, 5, 7)}, {})
            for d in ANY
            for c, x in (((3, 1, 7), ()), ((5, 7), (5, 1)))
        ],
    ),
    "aten._weight_int8pack_mm.default": (
        named(aten._weight_int8pack_mm.default, "x", "w", "scales"),
        [
            ({"x": floats(m, k), "w": whole("int8", n, k), "scales": RNG.uniform(0.01, 0.1, n).astype(np.float32)}, {})
            for m, k, n in ((1, 32, 16), (5, 37, 11), (3, 64, 7))
        ],
    ),
}


def quantized() -> Mapping[str, tuple[Torch, list[Trial]]]:
    """Ops that ExecuTorch defines in Python; none where it is not installed."""
    try:
        import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
    except ImportError:
        return {}
    names = ("x", "scale", "zero", "w", "sums", "scales", "out_scale", "out_zero", "bias", "activation")
    trials = []
    for m, k, n in ((1, 32, 16), (5, 37, 11)):
        w = whole("int8", n, k)
        arrays = {"x": whole("int8", m, k), "w": w, "sums": w.sum(1).astype(np.int32), "bias": floats(n)}
        arrays["scales"] = RNG.uniform(0.01, 0.1, n).astype(np.float32)
        attrs = product(scale=(0.02,), zero=(-14, 3), out_scale=(1.7,), out_zero=(-9,), activation=("none", "relu"))
        trials += [(arrays, given) for given in attrs]
    linears = {f"et_vk.{name}.default": getattr(torch.ops.et_vk, name) for name in ("q8ta_linear", "q8ta_linear_gemv")}
    return {name: (named(call, *names), trials) for name, call in linears.items()}
