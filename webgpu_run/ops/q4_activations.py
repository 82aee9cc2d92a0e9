"""How activations reach the kernels of 4-bit linears: in which form, and which dispatches prepare them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from ..shapes import align, ceil_div, prod
from .limits import Limits
from .plan import STAGED_ROWS, Stage, Step, Window, fold
from .spec import Resource

NORM_ROWS = 4  # up to this many rows are normalised by every workgroup, because a dispatch of its own costs more
FEW_ROWS = 16  # up to this many rows are read from a uniform window, because copying them into a texture costs more

# Inputs of a row that q8_x_staged.wgsl, with two bytes for each, puts into the workgroup memory that every adapter has.
_STAGED_INPUTS = 8192


class Form(enum.Enum):
    """In what form a kernel reads its activations."""

    STORAGE = enum.auto()  # f32 rows in a storage buffer, all of them in one dispatch: the form of GPUs
    UNIFORM = enum.auto()  # f32 rows in a window of a uniform buffer, or in storage if a row is larger than a uniform
    TEXTURE = enum.auto()  # f32 rows in a texture, all of them in one dispatch
    ROUNDED_IN_KERNEL = enum.auto()  # one f32 row, which the kernel itself rounds to 8 bits
    PACKED = enum.auto()  # a window of rows that an earlier dispatch rounded to 8 bits and packed in pairs
    PACKED_TEXTURE = enum.auto()  # such rows in a texture, all of them in one dispatch
    BYTES = enum.auto()  # rows in a storage buffer that an earlier dispatch rounded to bytes


_ITEM_BYTES = {Form.PACKED: 2, Form.PACKED_TEXTURE: 2, Form.BYTES: 1}  # of an activation; f32 otherwise


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear with 4-bit weights and everything that is fused into it."""

    k: int
    group: int
    widths: tuple[int, ...]  # columns of each weight
    outs: tuple[str, ...] = ("out",)
    bias: bool = False
    norm: bool = False  # RMS norm before
    eps: float = 0.0
    residual: bool = False  # added after
    swiglu: bool = False  # the two weights are gate and up of one output
    rounded: bool = False  # activations are rounded to 8 bits per row


@dataclass(frozen=True, slots=True)
class ActivationSource:
    """What a kernel binds as its activations, and the dispatches that prepare them."""

    form: Form
    x: str = "x"  # bound as activations
    norm: str = ""  # bound as the norm's weight; empty if the kernel does not normalise
    has_factors: bool = False  # the kernel multiplies the sums of each row by its factor of the norm
    is_whole: bool = False  # rows are larger than a uniform, so x is bound as a whole, as storage
    steps: tuple[Step, ...] = ()  # dispatches before the kernel
    stage: Stage | None = None  # copy into a texture before the kernel

    @property
    def in_texture(self) -> bool:
        return self.form in (Form.TEXTURE, Form.PACKED_TEXTURE)

    @property
    def in_storage(self) -> bool:
        return self.form in (Form.STORAGE, Form.BYTES)

    @property
    def itemsize(self) -> int:
        return _ITEM_BYTES.get(self.form, 4)

    def window(self, first: int, rows: int, k: int) -> tuple[tuple[str, Window], ...]:
        """The part of the activations that a dispatch binds; textures and storage buffers are bound as a whole."""
        part = Window(first * k * self.itemsize, rows * k * self.itemsize)
        return () if self.in_storage or self.in_texture or self.is_whole else ((self.x, part),)


def is_long(k: int, limits: Limits, itemsize: int = 4) -> bool:
    """Whether a row of k elements is larger than a uniform."""
    return k * itemsize > limits.max_uniform


def window_rows(k: int, limits: Limits, itemsize: int = 4) -> int:
    """Rows of k elements that one dispatch binds as a uniform. The next window must start at an aligned offset."""
    rows = limits.max_uniform // (itemsize * k)
    step = 4 if rows >= 4 else 1
    rows -= rows % step
    while rows > step and rows * k * itemsize % limits.uniform_align:
        rows -= step
    return rows


def bound_rows(m: int, k: int, limits: Limits, *, itemsize: int = 4) -> int:
    """Rows in the window of a dispatch over m rows, 0 if a row is larger than a uniform.

    A window may end past the live rows, but not past the buffer. If many rows go through a texture, a graph that was
    built for many rows pads its buffers only as far as a window of few rows needs it.
    """
    if m == 1:
        return int(not is_long(k, limits, itemsize))
    return _few_rows(k, limits, itemsize) if _can_stage(k, limits, itemsize) else window_rows(k, limits, itemsize)


def padded_rows(m: int, k: int, limits: Limits, *, itemsize: int = 4) -> int:
    """Rows that the windows over m rows cover."""
    return align(m, bound_rows(m, k, limits, itemsize=itemsize) or 1)


def _can_stage(k: int, limits: Limits, itemsize: int = 4) -> bool:
    """Whether rows can be copied into a texture, which pays on software adapters with subgroups."""
    profile = limits.profile
    fits = k % 64 == 0 if itemsize == 4 else True  # a copy takes rows of whole 256 bytes; packed rows are padded
    return profile.images and profile.shuffle and fits and _pitch(k) * itemsize // 16 <= limits.max_texture


def _pitch(k: int) -> int:
    """Elements from one packed row to the next where rows are copied into a texture."""
    return align(k, 128)


def _few_rows(k: int, limits: Limits, itemsize: int = 4) -> int:
    return min(window_rows(k, limits, itemsize), FEW_ROWS)


def _are_many_rounded(m: int, k: int, limits: Limits) -> bool:
    """Whether m rounded rows are so many that they go through a texture, if it has room for them."""
    return _can_stage(k, limits, 2) and m > _few_rows(k, limits, 2)


def _fit_texture(m: int, limits: Limits) -> bool:
    return m <= STAGED_ROWS * limits.max_layers


def resources(m: int, k: int, limits: Limits, *, norm: bool, rounded: bool) -> dict[str, Resource]:
    """Scratch for the staged, normalised or rounded rows of a prefill."""
    if from_storage(limits):
        in_bytes = rounded and limits.dot4
        ready = {"normed": Resource(m * k * (1 if in_bytes else 4))} if m > 1 and (rounded or norm) else {}
        return ready | ({"sizes": Resource(m * (8 if in_bytes else 4))} if m > 1 and rounded else {})
    if is_long(k, limits, 2):  # such weights are no strips (q4_layout.fits)
        return {}
    if limits.profile.shuffle and not rounded and not (norm and is_long(k, limits)):
        if m == 1 or not _can_stage(k, limits):
            return {}
        layers = min(ceil_div(m, STAGED_ROWS), limits.max_layers)
        image = Resource(layers * STAGED_ROWS * k * 4, texture=(k // 4, STAGED_ROWS, layers))
        many = m > _few_rows(k, limits)
        if norm:
            rows = {"normed": Resource(m * k * 4)} if many else {}
            return {"ready": image, "factors": Resource(align(m, 8) * 4), **rows}
        return {"staged": image} if many else {}
    if not (norm or rounded):
        return {}
    if rounded and _are_many_rounded(m, k, limits):
        size = (_pitch(k) // 8, STAGED_ROWS, min(ceil_div(m, STAGED_ROWS), limits.max_layers))
        most = max(align(m, 8), padded_rows(m, k, limits, itemsize=2))
        return {
            "sizes": Resource(most * 4),
            "normed": Resource(most * _pitch(k) * 2),
            "pairs": Resource(prod(size) * 16, texture=size, texel="rgba32uint"),
        }
    itemsize = 2 if rounded else 4
    padded = padded_rows(max(m, 2), k, limits, itemsize=itemsize)
    return {"normed": Resource(padded * k * itemsize)} | ({"sizes": Resource(padded * 4)} if rounded else {})


def from_storage(limits: Limits) -> bool:
    """Whether kernels read activations from storage, and through workgroup memory: GPUs do."""
    return limits.profile.splits > 1


def source(linear: Linear, m: int, limits: Limits) -> ActivationSource:
    """Where the kernel finds its m rows.

    Usually a single row is rounded, and few rows are normalised, by the kernel itself. Many rows, and those that are
    larger than a uniform, are normalised and rounded once, into scratch, because every strip would have to repeat the
    work. On software adapters with subgroups the sums of a row are the same to the bit, however many rows there are.
    """
    k, norm, rounded, long = linear.k, linear.norm, linear.rounded, is_long(linear.k, limits)
    if from_storage(limits):
        if m > 1 and (rounded or norm):
            form = Form.BYTES if rounded and limits.dot4 else Form.STORAGE
            return ActivationSource(form, "normed", steps=tuple(_ready_steps(linear, m, form, limits)))
        return ActivationSource(Form.STORAGE, norm="norm" if norm else "")
    if m > 1 and _can_stage(k, limits) and _fit_texture(m, limits) and not rounded and not (norm and long):
        many = m > _few_rows(k, limits)
        if norm and (many or m > NORM_ROWS):
            stage = Stage("normed", "ready", m, k // 4) if many else None
            norm_step = _norm_step(linear, m, limits, many=many)
            return ActivationSource(Form.TEXTURE, "ready", has_factors=True, steps=(norm_step,), stage=stage)
        if many:
            return ActivationSource(Form.TEXTURE, "staged", stage=Stage("x", "staged", m, k // 4))
    if rounded and _are_many_rounded(m, k, limits) and _fit_texture(m, limits):
        form, stage = Form.PACKED_TEXTURE, Stage("normed", "pairs", m, _pitch(k) // 8)
        return ActivationSource(form, "pairs", steps=tuple(_ready_steps(linear, m, form, limits)), stage=stage)
    rounds = m == 1 and (limits.profile.shuffle or k <= _STAGED_INPUTS)
    in_kernel = not long and (rounds if rounded else m == 1 or limits.profile.shuffle)
    if (rounded or norm) and not in_kernel:
        form = Form.PACKED if rounded else Form.UNIFORM
        steps = tuple(_ready_steps(linear, m, form, limits))
        return ActivationSource(form, "normed", is_whole=long and not rounded, steps=steps)
    form = Form.ROUNDED_IN_KERNEL if rounded else Form.UNIFORM
    return ActivationSource(form, norm="norm" if norm else "", is_whole=long)


def _norm_step(linear: Linear, m: int, limits: Limits, *, many: bool) -> Step:
    """Normalise m rows: many of them into the buffer `normed`, few, from a window, into the texture `ready`."""
    k, groups = linear.k, limits.profile.groups
    window = 0 if many else _few_rows(k, limits)
    consts = (("K", k), ("ROWS", 4), ("MANY", int(many)), ("STAGED_ROWS", STAGED_ROWS), ("WINDOW", window))
    return Step(
        "norm_rows",
        (("rows", m), ("eps", linear.eps)),
        (ceil_div(m, 4 * groups), 1, 1),
        (*consts, ("GROUPS", groups)),
        () if many else (("x", Window(0, window * k * 4)),),
        (("x", "x"), ("norm", "norm"), ("out", "normed" if many else "ready")),
        (8 * m * k, 4 * m * k),
    )


def _ready_steps(linear: Linear, m: int, form: Form, limits: Limits) -> Iterator[Step]:
    """Normalise and round m rows into `normed` in this form, with their `sizes` if rounded.

    Software adapters read few rows through a uniform window per dispatch, because reads from storage are slower there.
    """
    k, profile = linear.k, limits.profile
    in_texture = form is Form.PACKED_TEXTURE
    uniform = profile.images and not in_texture and not is_long(k, limits)
    window = m
    if uniform:
        most = bound_rows(m, k, limits, itemsize=_ITEM_BYTES.get(form, 4))
        window = min(bound_rows(m, k, limits), most)
        while _can_stage(k, limits, 2) and most % window:  # the last window may end with row `most` of x at the latest
            window -= 1
    for first in range(0, m, window):
        live = min(window, m - first)
        yield Step(
            "ready_rows_subgroup" if profile.shuffle else "ready_rows",
            (("rows", live), ("first", first), ("eps", linear.eps)),
            fold(live, limits, f"{live} rows"),
            (
                ("WG", 8 if profile.shuffle else profile.workgroup),
                ("K", k),
                ("PITCH", _pitch(k) if in_texture else k),
                ("NORM", int(linear.norm)),
                ("ROUND", int(linear.rounded)),
                ("PACKED", int(form in (Form.PACKED, Form.PACKED_TEXTURE))),
                ("BYTES", int(form is Form.BYTES)),
                ("WINDOW", window if uniform else 0),
            ),
            (("x", Window(first * k * 4, window * k * 4)),) if uniform else (),
            (("x", "x"), ("norm", "norm" if linear.norm else ""), ("out", "normed")),
            (live * k * (4 + _ITEM_BYTES.get(form, 4)), (6 if linear.rounded else 4) * live * k),
        )
