"""Small graphs for fusion passes, and what tests ask of a fused graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from webgpu_run.formats.vkgraph import SymInt, ValueList, VkGraph, VkTensor
from webgpu_run.graph import fuse
from webgpu_run.graph.passes import rounding
from webgpu_run.ops.limits import SOFTWARE, Limits

from helpers.graphs import Builder, Ref, q4

LIMITS = Limits(uniform_align=32, storage_align=32, profile=SOFTWARE)
VIEW, LINEAR, NORM = "aten.view_copy.default", "et_vk.linear_q4gsw.default", "et_vk.rms_norm.default"
ADD, MUL, SIGMOID = "aten.add.Tensor", "aten.mul.Tensor", "aten.sigmoid.default"
ONE, TWO, THREE = (f"wr.linear_q4gsw.{n}" for n in (1, 2, 3))


def names(vk: VkGraph) -> Counter[str]:
    return Counter(call.name for call in vk.chain)


def check(vk: VkGraph) -> None:
    """Whatever is read has been given or made before, nothing is made twice, and what is returned is made."""

    def parts(v: int) -> list[int]:
        value = vk.values[v]
        return list(value.items) if isinstance(value, ValueList) else [v]

    made = set(vk.input_ids)
    for call in vk.chain:
        for v in (p for arg in call.args[:-1] for p in parts(arg)):
            value = vk.values[v]
            free = not isinstance(value, VkTensor | SymInt) or getattr(value, "constant_id", -1) >= 0
            assert free or v in made, f"{call.name} reads {v} before it is made"
        outs = parts(call.args[-1])
        assert not made & set(outs), f"{call.name} makes {outs} again"
        made |= set(outs)
    assert set(vk.output_ids) <= made, "something that is returned is not made"


def dynamic(b: Builder, x: Ref, k: int = 64, group: int = 32, shared: Sequence[Ref] = (), **form: Any) -> list[Ref]:
    """A linear of k to 32 with 8-bit rows, as the exporter spells it: its output, the scale and the zero point.

    `form` replaces attributes of `choose_qparams_affine`; `shared` is a scale and a zero point to use instead.
    """
    form = {"mode": "ASYMMETRIC", "block": (1, 1, k), "low": -128, "high": 127, "eps": None, **form}
    attributes = (form["mode"], form["block"], None, form["low"], form["high"], form["eps"], None, None, False)
    scale, zero = shared or b.call(rounding.CHOOSE, x, *attributes, dtype=["float32", "int8"], out=[(1, 4, 1)] * 2)
    dims = (((32, k // 2), np.uint8), ((k // group, 32), np.int32), ((k // group, 32), np.float32))
    weight = [b.constant(np.zeros(d, t)) for d, t in dims]
    return [b.call(rounding.DYNAMIC, x, scale, zero, *weight, group, None, out=(1, 4, 32)), scale, zero]


class Small(Builder):
    """Rows of x, and linears on them."""

    def __init__(self, k: int = 64) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)
        self.x = self.input((1, 5, k))

    def linear(self, x: Ref, n: int, group: int = 32, bias: bool = False) -> Any:
        k = self.values[x.id].dims[-1]
        w, scales = q4(self.rng, n, k, group)
        b = self.constant(self.rng.standard_normal(n).astype(np.float32)) if bias else None
        return self.call(LINEAR, x, self.constant(w), self.constant(scales), group, b, out=(1, 5, n))

    def norm(self, x: Ref) -> Any:
        return self.call(NORM, x, self.constant(np.ones(self.values[x.id].dims[-1], np.float32)), 1e-5)

    def swiglu(self, gate: Ref, up: Ref, turned: int = 0) -> Any:
        """silu(gate) * up with the operands of either multiplication in either order."""
        sigmoid = self.call(SIGMOID, gate)
        silu = self.call(MUL, *((gate, sigmoid), (sigmoid, gate))[turned & 1])
        return self.call(MUL, *((silu, up), (up, silu))[turned >> 1])


def fused_names(b: Builder, limits: Limits = LIMITS) -> Counter[str]:
    vk = fuse.fuse(b.vk(), limits)
    check(vk)
    return names(vk)


def attention(
    *,
    projected: bool = False,
    rope: str = "et_vk.apply_rotary_emb.default",
    other_k: bool = False,
    keep: str = "",
    share: bool = False,
    computed_cache: bool = False,
    start: str = "pos",
    step: int = 1,
    axis: int = 0,
    copies: int = 0,
    reshaped: bool = False,
    dim: int = 8,
) -> Builder:
    """Attention of 4 query heads and 2 key heads as the exporter writes it, with one detail changed at a time.

    With `projected`, queries, keys and values are views of three linears. `keep` names a value that is also returned.
    """
    b = Small()
    if not projected:
        b.inputs.remove(b.x.id)
    heads = {"q": 4, "k": 2, "v": 2}
    linear = {name: b.linear(b.x, n * dim) for name, n in heads.items()} if projected else {}
    parts = {
        name: b.call(VIEW, linear[name], (1, 5, n, dim)) if projected else b.input((1, 5, n, dim))
        for name, n in heads.items()
    }
    at = b.input((2,), "int32")
    pos, zero = (b.call("et_vk.select_as_symint.default", at, 0, i) for i in (0, 1))
    live = b.call("sym_size.int", b.x if projected else parts["q"], 1)
    end = b.call("add", pos, live)
    is_sliced = rope == "et_vk.apply_rotary_emb.default"
    tables = [b.constant(np.ones((20, dim // 2 if is_sliced else dim), np.float32)) for _ in range(2)]
    if start == "number":
        pos = b.value(3)
    first = zero if start == "zero" else pos
    if is_sliced:
        tables = [b.call("aten.slice_copy.Tensor", t, axis, first, end, step, out=(5, dim // 2)) for t in tables]
    for _ in range(copies):
        tables = [b.call("aten.clone.default", t, None) for t in tables]
    if reshaped:
        tables = [b.call(VIEW, t, (5, 1, dim // 2)) for t in tables]
    dims = (1, 20, 2, dim)
    caches = [b.input(dims) if computed_cache else b.constant(np.zeros(dims, np.float32)) for _ in range(2)]
    for _ in range(1 + share):
        rotated = [(1, 5, n, dim) for n in (4, 2)]
        rq, rk = b.call(rope, parts["q"], parts["k"], *tables, *(() if is_sliced else (first,)), out=rotated)
        key = parts["k"] if other_k else rk
        b.output(b.call("sdpa_with_kv_cache.default", rq, key, parts["v"], *caches, pos, live, None, 0.0, True, None))
    if keep:
        b.output({"rq": rq, "rk": rk, "view": parts["v"], "linear": linear.get("v")}[keep])
    return b
