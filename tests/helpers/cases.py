"""Test cases beyond those in the ops' own files: primes, batches, odd counts, other dtypes, and data at the edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from webgpu_run.debug.single_op import sized
from webgpu_run.ops.spec import REGISTRY, Case, Op, load_all
from webgpu_run.shapes import Array, Dims, align, ceil_div

_INT = {"a": "int32", "b": "int32", "out": "int32"}
_ROWS = ({"a": (1, 3, 7), "b": (1, 3, 7)}, {"a": (1, 1, 7), "b": (1, 1, 7)})
_BINARY = (
    Case({"a": (1, 11, 7), "b": (1, 11, 7)}, {"alpha": 1}, _ROWS),
    Case({"a": (2, 3, 4, 5, 2), "b": (4, 1, 2)}, {"alpha": 1}, ({"a": (2, 2, 4, 5, 2)}, {"a": (1, 3, 4, 1, 2)})),
    Case({"a": (6, 5), "b": (6, 5)}, {"alpha": 1}, ({"a": (2, 5), "b": (2, 5)},), _INT),
    Case({"a": (7, 4), "b": (7, 4)}, {"alpha": 1}, (), {"a": "int32", "b": "float32"}),
)
_BOTH = {"x": (2, 3, 2, 5)}
_UNARY = (Case({"x": (1, 13, 7)}, live=({"x": (1, 1, 7)}, {"x": (1, 4, 7)}, {"x": (1, 3, 7)})), Case({"x": ()}))


def _rope(b: int, s: int, q: int, k: int, d: int) -> dict[str, Dims]:
    return {"xq": (b, s, q, d), "xk": (b, s, k, d)}


def _rope_full(b: int, s: int, q: int, k: int, d: int) -> dict[str, Dims]:
    return _rope(b, s, q, k, d) | {"cos": (s, d // 2), "sin": (s, d // 2)}


def _q4(m: int, k: int, n: int, group: int, *live: int, bias: bool = False) -> Case:
    dims: dict[str, Dims] = {"x": (1, m, k), "w": (n, align(k, 8) // 2), "out": (1, m, n)}
    dims["scales"] = (ceil_div(k, group), align(n, 4))
    if bias:
        dims["bias"] = (align(n, 4),)
    return Case(dims, {"group": group}, tuple({"x": (1, s, k)} for s in live), {"w": "uint8"}, tol=1e-5)


MORE: Mapping[str, tuple[Case, ...]] = {
    "et_vk.rms_norm.default": (
        Case({"x": (3, 13, 5), "weight": (5,)}, {"eps": 1e-5}, ({"x": (2, 13, 5)}, {"x": (1, 1, 5)})),
        Case({"x": (2, 4099), "weight": (4099,)}, {"eps": 1e-5}, ({"x": (1, 4099)},)),
        Case({"x": (17, 4), "weight": (4,)}, {"eps": 3e-4}, ({"x": (16, 4)}, {"x": (1, 4)})),
    ),
    "et_vk.apply_rotary_emb.default": (
        Case(_rope_full(2, 5, 3, 1, 6), live=(_rope_full(2, 3, 3, 1, 6), _rope(1, 5, 3, 1, 6), {"xk": (2, 1, 1, 6)})),
        Case(_rope_full(1, 1, 1, 1, 2)),
    ),
    "et_vk.apply_rotary_emb_hf.default": (
        Case(
            _rope(2, 5, 3, 1, 12) | {"cos": (17, 8), "sin": (17, 8)},
            {"pos": 11},
            (_rope(2, 1, 3, 1, 12), _rope(1, 3, 3, 1, 12), {"xq": (2, 2, 3, 12)}),
        ),
    ),
    "et_vk.linear_q4gsw.default": (
        _q4(13, 160, 37, 32, 1, 2, 3, 4, 5, 7, 8, 12),
        _q4(9, 32, 3, 32, 1, 8, bias=True),
        _q4(11, 12, 10, 4, 1, 2, 7),
        _q4(33, 256, 131, 128, 1, 16, 17, 31, bias=True),
    ),
    "et_vk.embedding_q4gsw.default": (
        Case(
            {"w": (7, 16), "scales": (7, 4), "index": (3, 5)},
            {"group": 8, "linear": False},
            ({"index": (3, 1)}, {"index": (1, 5)}),
            {"w": "uint8", "index": "int32"},
        ),
    ),
    "aten.linear.default": (
        Case({"x": (1, 11, 37), "w": (13, 37)}, live=({"x": (1, 1, 37)}, {"x": (1, 4, 37)}, {"x": (1, 5, 37)})),
        Case({"x": (2, 3, 20), "w": (7, 20), "bias": (7,)}, live=({"x": (1, 1, 20)}, {"x": (2, 1, 20)})),
        Case({"x": (1, 6, 32), "w": (83, 32), "bias": (83,)}, live=({"x": (1, 1, 32)}, {"x": (1, 3, 32)})),
    ),
    "aten.bmm.default": (Case({"a": (2, 3, 13), "b": (2, 13, 5)}, live=({"a": (1, 3, 13), "b": (1, 13, 5)},)),),
    "aten.embedding.default": (
        Case(
            {"table": (5, 7), "index": (2, 3)}, live=({"index": (1, 2)}, {"index": (2, 1)}), dtypes={"index": "int32"}
        ),
        Case({"table": (101, 24), "index": (1, 9)}, live=({"index": (1, 4)},), dtypes={"index": "int32"}),
    ),
    "aten.index.Tensor": (
        Case({"table": (13, 3, 2), "at0": (7,)}, {"at": (True,)}, ({"at0": (1,)}, {"at0": (4,)}), {"at0": "int32"}),
    ),
    "aten.index_select.default": (
        Case({"table": (13, 3), "index": (7,)}, {"dim": 0}, ({"index": (1,)}, {"index": (4,)}), {"index": "int32"}),
    ),
    "aten.slice_copy.Tensor": (
        Case({"x": (2, 11, 3)}, {"dim": 1, "start": -4, "end": -1, "step": 2}, ({"x": (2, 5, 3)}, {"x": (1, 2, 3)})),
        Case({"x": (7, 5)}, {"dim": 1, "start": 3, "end": None, "step": 1}, ({"x": (1, 5)}, {"x": (7, 4)})),
    ),
    "aten.select_copy.int": (
        Case({"x": (7, 5)}, {"dim": 0, "index": 2}, ({"x": (3, 5)}, {"x": (7, 2)})),
        Case({"x": (2, 3, 4, 5)}, {"dim": -2, "index": -2}, ({"x": (2, 1, 4, 5)}, {"x": (2, 3, 2, 5)})),
    ),
    "aten.permute_copy.default": (
        Case({"x": (2, 3, 4, 5, 2)}, {"order": (0, -2, 2, 1, -1)}, ({"x": (1, 2, 4, 3, 2)}, {"x": (2, 1, 1, 5, 2)})),
    ),
    "aten.expand_copy.default": (Case({"x": (7, 1)}, {"dims": (3, -1, 5)}, ({"x": (2, 1)},)),),
    "aten.cat.default": (
        Case(
            {"xs0": (5, 3, 2), "xs1": (5, 7, 2)},
            {"xs": (True, True), "dim": 1},
            ({"xs0": (2, 3, 2), "xs1": (2, 5, 2)}, {"xs0": (5, 0, 2)}, {"xs1": (5, 1, 2)}),
        ),
        Case({"xs0": (3, 5), "xs1": (3, 7), "xs2": (3, 2)}, {"xs": (True,) * 3, "dim": 1}, ({"xs0": (3, 1)},)),
    ),
    "aten.view_copy.default": (
        Case({"x": (6, 4)}, {"dims": (-1, 8)}, ({"x": (2, 4)},)),
        Case({"x": (5, 3)}, {"dims": (3, 5)}),
    ),
    "aten.clone.default": (Case({"x": (5, 7)}, live=({"x": (3, 7)},)),),
    "et_vk.prepack.default": (Case({"x": (5, 7)}),),
    "aten.squeeze_copy.dims": (Case({"x": (5, 1, 3)}, {"dims": (1,)}, ({"x": (2, 1, 3)},)),),
    "aten.unsqueeze_copy.default": (Case({"x": (5, 3)}, {"dim": -2}, ({"x": (2, 3)},)),),
    "dim_order_ops._to_dim_order_copy.default": tuple(
        Case({"x": dims}, {}, live, {"x": source, "out": target})
        for source, target in (("float32", "int32"), ("int32", "float32"), ("float32", "bool"), ("int32", "bool"))
        for dims, live in (((5, 3), ({"x": (4, 3)}, {"x": (1, 3)})),)
    )
    + tuple(Case({"x": dims}, {}, (), {"x": "int32", "out": "int8"}) for dims in ((4, 3), (5, 3))),
    "llama.update_cache.default": (
        Case({"x": (1, 5, 3, 7), "cache": (1, 11, 3, 7)}, {"pos": 4}, ({"x": (1, 1, 3, 7)}, {"x": (1, 2, 3, 7)})),
    ),
}
for _name, _op in load_all().items():
    if (
        _op.cases
        and {"a", "b"} == {p.name for p in _op.params if p.kind == "tensor"}
        and _op.short not in ("bmm", "mm", "pow", "q8ta_add")
        and "bitwise" not in _name
    ):
        MORE = {**MORE, _name: _BINARY if _op.short == "add" else () if _op.short == "div" else _BINARY[2:3]}
    elif (
        _name.startswith("aten.")
        and _op.cases
        and [p.name for p in _op.params] == ["x"]
        and _name not in MORE
        and _op.short not in ("bitwise_not", "t_copy")
    ):
        MORE = {**MORE, _name: _UNARY if _op.short == "sigmoid" else _UNARY[:1]}

# Ops whose references need other data than normal numbers: what a case gives to an argument is passed through these.
_EDGES = np.array([0.0, 0.25, 0.0, -2.0, 0.0, 300.0, -300.0], np.float32)


def _edged(x: Array) -> Array:
    """The same with a few equal, zero and large elements."""
    out = x.reshape(-1).copy()
    for i in range(0, out.size, 3):
        out[i] = _EDGES[i % len(_EDGES)] if out.dtype.kind == "f" else int(_EDGES[i % len(_EDGES)])
    return out.reshape(x.shape)


def data_for(op: Op, arrays: dict[str, Array]) -> dict[str, Array]:
    """Random data of a case turned into data that tells right from nearly right."""
    short = op.short
    if short == "rms_norm":  # small rows, where eps weighs
        return {**arrays, "x": arrays["x"] * np.float32(0.01)}
    if short in ("amax", "amin"):  # every element more than all before it: one too many or too few is the extreme
        x = arrays["x"]
        ramp = (np.arange(x.size) * (1 if short == "amax" else -1)).reshape(x.shape)
        return {**arrays, "x": ramp.astype(x.dtype)}
    if op.name.startswith("wr.attention"):  # fusion makes these only of caches that start empty
        return {**arrays, "kc": np.zeros_like(arrays["kc"]), "vc": np.zeros_like(arrays["vc"])}
    if short == "rsqrt":
        return {**arrays, "x": np.abs(arrays["x"]) + np.float32(0.1)}
    if op.name == "aten.div.Tensor":
        b = arrays["b"]
        return {
            **arrays,
            "b": np.where(b == 0, b.dtype.type(3), b) if b.dtype.kind == "i" else np.abs(b) + b.dtype.type(0.5),
        }
    if short in ("_to_dim_order_copy", "_to_copy", "relu", "logical_not", "bitwise_not"):
        return {**arrays, "x": _edged(arrays["x"])}
    if short in ("eq", "ne", "lt", "le", "gt", "ge") or short.startswith(("logical_", "bitwise_")):
        return {k: _edged(v) for k, v in arrays.items()}
    return arrays


def all_cases() -> Iterator[tuple[str, int, Op, Case]]:
    """Every case of every op: its own, then those above."""
    seen: set[tuple[int, int]] = set()
    for name, op in sorted(REGISTRY.items()):
        own = op.cases
        if MORE.get(name) in (_BINARY[2:3], _UNARY[:1]):
            own = own[:2]  # one plan serves all of its kind: `add` and `sigmoid` have every case
        for i, case in enumerate((*own, *MORE.get(name, ()))):
            key = (id(op.plan), id(case))
            if key in seen:  # another name of the same op
                continue
            seen.add(key)
            yield f"{name.removesuffix('.default')}-{i}", i, sized(op, case), case
