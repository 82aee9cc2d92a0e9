"""4-bit, group-scaled weights: their bytes, their texels, and the dispatches that multiply by them.

The file has nibbles [N, K/2] (low is the even k, 8 stands for zero) and scales [K/G, N]. Packed, a strip is 4 * LANES
columns: lane l of strip s owns columns 4 * (s * LANES + l) + (0..3). TOGETHER strips are one texture row, so that a
workgroup that has them all reads one stream (or a strip is PARTS rows where it is wider than the widest texture). Along
it, for each group of G k: for each strip LANES texels with the f32 scales of the lane's four columns, then for each 32
k of the group, each strip and each of the four columns LANES texels, one a lane, each the 16 bytes of the file: nibble
j of word q is k = 8 q + j. Weights read together (queries, keys, values) follow one another; gate and up are `paired`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..shapes import Array, align, ceil_div
from . import q8
from .limits import Limits
from .plan import STAGED_ROWS, Grid, Stage, Step, Window, fold
from .spec import Packed, Resource

TILE_ROWS = 32  # of linear_q4gsw_tiled.wgsl
FEW_ROWS = 16  # as many are not worth a copy into an image, if one window holds them


def nibbles(w: Array) -> Array:
    """Bytes [N, K/2] to signed 4-bit values [N, K]."""
    out = np.empty((w.shape[0], w.shape[1] * 2), np.int8)
    out[:, 0::2] = (w & 15).astype(np.int8) - 8
    out[:, 1::2] = (w >> 4).astype(np.int8) - 8
    return out


def dequantize(w: Array, scales: Array, group: int, n: int, k: int) -> Array:
    """The weight [N, K] in float64; scales are [K/G, N or more]."""
    full = nibbles(w)[:n, :k].astype(np.float64)
    return full * np.repeat(scales.astype(np.float64)[:, :n], group, 0)[:k].T


def together(strips: int, k: int, group: int, limits: Limits) -> int:
    """Strips side by side in a texture row: three where that gives an even number of rows, lest one core waits for
    another at the end. (With four, reads of the same instruction are further apart than a processor foresees.)"""
    side = 3 if strips % 6 == 0 else 2
    wide = k // group * (1 + group // 8) * limits.profile.lanes * side
    return 1 if limits.profile.splits > 1 or wide > limits.max_texture else side


def parts_for(k: int, group: int, limits: Limits) -> int:
    """Texture rows a strip, where it has rows of its own."""
    groups = k // group
    parts = ceil_div(groups * (1 + group // 8) * limits.profile.lanes, limits.max_texture)
    while groups % parts:
        parts += 1
    return parts


def strips_of(n: int, limits: Limits) -> int:
    return ceil_div(n, 4 * limits.profile.lanes)


def strip_bytes(strips: int, k: int, group: int, limits: Limits) -> int:
    return strips * 4 * limits.profile.lanes * (k // 2 + k // group * 4)


def fits(k: int, group: int, widths: Sequence[int], limits: Limits) -> bool:
    """Whether they can be packed as strips: whole blocks of 32, a row of x in a uniform, a texture tall enough."""
    if k % 32 or group % 32 or k % group or k * 4 > limits.max_uniform or k * 4 % limits.uniform_align:
        return False
    if k // group * (1 + group // 8) * limits.profile.lanes > limits.max_texture * (k // group):
        return False
    return sum(strips_of(n, limits) for n in widths) * parts_for(k, group, limits) <= limits.max_texture


def texels(weights: Sequence[tuple[Array, Array]], group: int, limits: Limits) -> Packed:
    """The texture of one or more weights (bytes [N, K/2], scales [K/G, N]) that share K and G."""
    lanes = limits.profile.lanes
    k = weights[0][0].shape[1] * 2
    groups, blocks = k // group, group // 32
    total = sum(strips_of(w.shape[0], limits) for w, _ in weights)
    side = together(total, k, group, limits)
    rows = ceil_div(total, side)
    out = np.zeros((rows, groups, side * (1 + 4 * blocks), lanes), np.complex128)  # 16-byte items copy as one
    columns = out[:, :, side:].reshape(rows, groups, blocks, side, 4, lanes)
    first = 0
    for w, scales in weights:
        n = w.shape[0]
        strips = strips_of(n, limits)
        pad = strips * 4 * lanes - n
        if pad:
            w = np.concatenate([w, np.full((pad, k // 2), 0x88, np.uint8)])
        s = np.zeros((groups, strips * 4 * lanes), np.float32)
        s[:, :n] = scales[:, :n]
        source = np.ascontiguousarray(w).view(np.complex128).reshape(strips, lanes, 4, groups, blocks)
        scale = s.view(np.complex128).reshape(groups, strips, lanes)
        for strip in range(strips):
            row, at = divmod(first + strip, side)
            columns[row, :, :, at] = source[strip].transpose(2, 3, 1, 0)
            out[row, :, at] = scale[:, strip]
        first += strips
    parts = parts_for(k, group, limits)
    return Packed(out.view(np.uint32).reshape(rows * parts, -1, 4), texture=True)


def paired(gate: tuple[Array, Array], up: tuple[Array, Array]) -> tuple[Array, Array]:
    """One weight of two: a lane's four columns are two of gate and the same two of up."""
    n = gate[0].shape[0]
    odd = n % 2  # of nothing then
    w = [np.pad(part, ((0, odd), (0, 0)), constant_values=0x88) for part, _ in (gate, up)]
    s = [np.pad(scales[:, :n].T, ((0, odd), (0, 0))) for _, scales in (gate, up)]
    both = [np.stack(parts).reshape(2, -1, 2, parts[0].shape[1]).swapaxes(0, 1) for parts in (w, s)]
    return both[0].reshape(-1, both[0].shape[-1]), both[1].reshape(-1, both[1].shape[-1]).T


def paired_width(n: int) -> int:
    return 2 * align(n, 2)


def texture_consts(limits: Limits) -> tuple[tuple[str, str], ...]:
    """How kernels name and read the texture: as a read-only storage texture where that is the cheaper path."""
    if limits.profile.images:
        return (("TEXTURE", "texture_storage_2d<rgba32uint, read>"), ("LOAD", "textureLoad(t_w, vec2"), ("LEVEL", ")"))
    return (("TEXTURE", "texture_2d<u32>"), ("LOAD", "textureLoad(t_w, vec2"), ("LEVEL", ", 0)"))


def window_rows(k: int, limits: Limits, nbytes: int = 4) -> int:
    """Rows of x, of k elements of nbytes, that one dispatch binds; the next window must start where a uniform may."""
    rows = limits.max_uniform // (nbytes * k)
    step = 4 if rows >= 4 else 1
    rows -= rows % step
    while rows > step and rows * k * nbytes % limits.uniform_align:
        rows -= step
    return rows


def stageable(k: int, limits: Limits) -> bool:
    """Whether rows of x can go through an image: on software adapters with subgroups, if they may be copied there."""
    profile = limits.profile
    return profile.images and profile.shuffle and k % 64 == 0 and k // 4 <= limits.max_texture


def few_rows(k: int, limits: Limits) -> int:
    """As many are read from a window, more are copied into an image."""
    return min(window_rows(k, limits), FEW_ROWS)


def held(m: int, limits: Limits) -> bool:
    """Whether so many rows fit an image."""
    return m <= STAGED_ROWS * limits.max_layers


def bound_rows(m: int, k: int, limits: Limits, *, nbytes: int = 4, rounded: bool = False) -> int:
    """Rows of x in the window of a dispatch. Where many rows are an image, a graph that was built for them has room for
    a window of few behind its tensors, and for no other."""
    if m > 1 and stageable(k, limits) and not rounded:
        return few_rows(k, limits)
    return 1 if m == 1 else window_rows(k, limits, nbytes)


def padded_rows(m: int, k: int, limits: Limits, *, nbytes: int = 4, rounded: bool = False) -> int:
    """Rows that the windows over m rows cover."""
    return align(m, bound_rows(m, k, limits, nbytes=nbytes, rounded=rounded))


def resources(m: int, k: int, normed: bool, limits: Limits, *, rounded: bool = False) -> dict[str, Resource]:
    """The staged, normalised or rounded rows of a prefill."""
    found: dict[str, Resource] = {}
    if m > 1 and stageable(k, limits) and not rounded:
        layers = min(ceil_div(m, STAGED_ROWS), limits.max_layers)
        image = Resource(layers * STAGED_ROWS * k * 4, texture=(k // 4, STAGED_ROWS, layers))
        found = ({"rows": image} if m > few_rows(k, limits) else {}) | ({"ready": image} if normed else {})
        normed = normed and not held(m, limits)
    room = padded_rows(max(m, 2), k, limits, rounded=rounded) * k * 4 * (normed or rounded)
    if rounded:
        pairs = padded_rows(max(m, 2), k, limits, nbytes=2, rounded=True)
        found["sizes"], room = Resource(pairs * 4), max(room, pairs * k * 2)
    return found | ({"normed": Resource(room)} if room else {})


@dataclass(frozen=True, slots=True)
class ActivationSource:
    """How rows reach the strips: dispatches before, what is bound in their and the norm's place, and in which form."""

    x: str
    norm: str = ""
    steps: tuple[Step, ...] = ()
    form: str = ""  # as they are; "image"; "fresh" rounds one row in the kernel; "packed" rows were rounded before
    folded: bool = False  # the kernel itself normalises
    stage: Stage | None = None  # before the kernel

    @property
    def rounded(self) -> bool:
        return self.form in ("fresh", "packed")

    @property
    def nbytes(self) -> int:
        """Of an element."""
        return 2 if self.form == "packed" else 4

    def window(self, first: int, rows: int, k: int) -> tuple[tuple[str, Window], ...]:
        """What a dispatch binds of them: an image as a whole."""
        part = Window(first * k * self.nbytes, rows * k * self.nbytes)
        return () if self.form == "image" else ((self.x, part),)


def source(
    m: int, k: int, limits: Limits, *, x: str, norm: str | None, eps: float, rounded: bool, tiled: bool = False
) -> ActivationSource:
    """Many rows are normalised and rounded once, into scratch: cheaper than every strip doing it for itself."""
    if m > 1 and stageable(k, limits) and held(m, limits) and not rounded:
        stage = Stage(x, "rows", m, k // 4) if m > few_rows(k, limits) else None
        if norm is not None:
            return ActivationSource("ready", steps=(_norm_step(m, k, eps, x, norm, stage, limits),), form="image")
        if stage:
            return ActivationSource("rows", form="image", stage=stage)
    fresh = m == 1 and limits.profile.shuffle
    if (rounded and not fresh) or (norm is not None and m > 1):
        rows_of = bound_rows if limits.profile.images else padded_rows
        window = rows_of(m, k, limits, rounded=rounded)
        packed = rounded and not tiled
        steps = q8.ready_steps(m, k, window, eps, x, norm, limits, rounded=rounded, packed=packed)
        return ActivationSource("normed", "", tuple(steps), "packed" if packed else "")
    return ActivationSource(x, norm or "", (), "fresh" if rounded else "", norm is not None)


def _norm_step(m: int, k: int, eps: float, x: str, norm: str, stage: Stage | None, limits: Limits) -> Step:
    window = 0 if stage else few_rows(k, limits)
    return Step(
        "norm_rows",
        (("eps", eps),),
        (ceil_div(m, 4), 1, 1),
        (("K", k), ("ROWS", 4), ("STAGED_ROWS", STAGED_ROWS), ("STAGED", int(stage is not None)), ("WINDOW", window)),
        () if stage else ((x, Window(0, window * k * 4)),),
        (("x", stage.image if stage else x), ("norm", norm), ("out", "ready")),
        (12 * m * k, 4 * m * k),
        stage,
    )


def strip_grid(strips: int, rows: int, limits: Limits) -> Grid:
    """Workgroups of q4_strips.wgsl: rows in x, so that those of the same strips come one after the other and find them
    in a cache; strips in y and z."""
    return (rows, *fold(strips, limits, f"{strips} strips")[:2])


def strip_consts(
    m: int, k: int, group: int, limits: Limits, rows_from: ActivationSource, strips: int, *, swiglu: bool = False
) -> dict[str, int]:
    """The compile-time constants of q4_strips.wgsl."""
    profile, norm = limits.profile, rows_from.folded
    image = rows_from.form == "image"
    window = bound_rows(m, k, limits, nbytes=rows_from.nbytes, rounded=rows_from.rounded)
    rows = min(m, 2) if m < 3 else 4
    rows = rows if image else min(rows, window)
    # lanes that share columns are joined in workgroup memory, 80 bytes each, and each needs a block of its own
    splits = min(
        profile.splits,
        k // 32,
        limits.max_workgroup_bytes // (80 * profile.lanes),
        limits.max_invocations // profile.lanes,
    )
    # x is made ready once for all strips of a workgroup: with one row more of them pay, with four an instruction cache
    # holds the code of two
    side = together(strips, k, group, limits)
    each = 2 if splits == 1 else 1
    if splits == 1 and rows == 1:
        each = 4 if side < 3 and strips % 8 == 0 else max(side, 2)
    return {
        "K": k,
        "G": group,
        "LANES": profile.lanes,
        "TOGETHER": side,
        "PARTS": parts_for(k, group, limits),
        "ROWS": rows,
        "SPLITS": splits,
        "STRIPS": each,
        **({"STAGED_ROWS": STAGED_ROWS} if image else {"WINDOW": window}),
        "NORM": int(norm),
        "SWIGLU": int(swiglu),
    }


def tiled(m: int, limits: Limits) -> bool:
    """Whether this many rows go through linear_q4gsw_tiled.wgsl."""
    lanes = limits.profile.lanes
    shared = 32 * (lanes + TILE_ROWS // 4) * 16
    fits = shared <= limits.max_workgroup_bytes and lanes * 8 <= limits.max_invocations
    return limits.profile.tiled and m >= TILE_ROWS // 4 and fits


def linear_steps(
    m: int,
    k: int,
    group: int,
    widths: Sequence[int],
    limits: Limits,
    *,
    x: str = "x",
    outs: Sequence[str] = ("out",),
    bias: bool = False,
    norm: str | None = None,
    eps: float = 0.0,
    residual: str | None = None,
    swiglu: bool = False,
    rounded: bool = False,
) -> tuple[Step, ...]:
    """m rows times one to three packed weights; with `swiglu` the two weights are gate and up of one output."""
    strips = [strips_of(n, limits) for n in ([paired_width(widths[0])] if swiglu else widths)]
    rows_from = source(m, k, limits, x=x, norm=norm, eps=eps, rounded=rounded, tiled=tiled(m, limits))
    steps = list(rows_from.steps)
    wide = [widths[0], 0, 0] if swiglu else [*widths, 0, 0][:3]
    edges = (strips[0], strips[0] + (strips[1] if len(strips) > 1 else 2**31))
    consts = strip_consts(m, k, group, limits, rows_from, sum(strips), swiglu=swiglu)
    window, rows, each = consts.get("WINDOW", m), consts["ROWS"], consts["STRIPS"]
    kernel = {"": "linear_q4gsw_strips", "packed": "linear_dq8ca_strips"}.get(rows_from.form, "")
    if limits.profile.shuffle:
        kernel += "_subgroup"
    kernel = {"fresh": "linear_dq8ca_fresh", "image": "linear_q4gsw_rows"}.get(rows_from.form, kernel)
    if tiled(m, limits):  # x from storage, so all rows at once; still whole windows, which fewer rows will need
        kernel, window, rows, each = "linear_q4gsw_tiled", padded_rows(m, k, limits), TILE_ROWS, 1
        consts = {name: consts[name] for name in ("K", "G", "LANES", "PARTS", "SWIGLU")}
    # with one row the checks of what is stored cost nothing
    full = m > 1 and sum(strips) % each == 0 and not any(n % (limits.profile.lanes * (4 >> swiglu)) for n in widths)
    consts |= {"OUTS": len(outs), "BIAS": int(bias), "RESIDUAL": int(residual is not None), "EDGE": int(not full)}
    rename = [("x", rows_from.x), ("norm", rows_from.norm), ("res", residual or "")]
    rename += [(f"out{i}", name) for i, name in enumerate(outs)]
    weight_bytes = strip_bytes(sum(strips), k, group, limits)
    for first in range(0, m, window):
        live = min(window, m - first)
        steps.append(
            Step(
                kernel,
                (
                    ("n0", wide[0]),
                    ("n1", wide[1]),
                    ("n2", wide[2]),
                    ("strip1", edges[0]),
                    ("strip2", edges[1]),
                    ("rows", live),
                    ("out_row", first),
                    ("eps", eps),
                ),
                strip_grid(ceil_div(sum(strips), each), ceil_div(live, rows), limits),
                (*consts.items(), *texture_consts(limits)),
                rows_from.window(first, window, k),
                tuple(rename),
                (weight_bytes + 4 * live * (k + sum(wide)), 2 * live * k * sum(widths)),
                rows_from.stage,
            )
        )
    return tuple(steps)
