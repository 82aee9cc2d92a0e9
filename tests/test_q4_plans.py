"""The dispatches of 4-bit linears, field by field: what they must be for a shape, worked out here a second time.

Checks of numbers can't see a field that a form of the kernel does not use, or a workgroup too many; these can.
"""

from __future__ import annotations

import itertools

import pytest

from webgpu_run.op import SOFTWARE, Limits, Step
from webgpu_run.ops import q4

LIMITS = Limits(software=True, subgroups=True, uniform_align=32, max_texture=16384, profile=SOFTWARE)
ALL = 2**31


def up(a: int, b: int) -> int:
    return (a + b - 1) // b


def expected(m: int, k: int, group: int, widths: tuple[int, ...], form: str) -> list[dict[str, object]]:
    """Uniforms, grid and the constants that depend on the shape, of every dispatch of the linear itself."""
    strips = [up(n, 32) for n in widths]
    swiglu = form == "swiglu"
    window = 1 if m == 1 else next(r for r in range(65536 // (4 * k) // 4 * 4, 0, -4) if r * k * 4 % 32 == 0)
    rows = 1 if m == 1 else 2 if m == 2 else 4
    outs = [*(widths[:1] if swiglu else widths), 0, 0][:3]
    ends = list(itertools.accumulate(strips))
    found = []
    for first in range(0, m, window):
        live = min(window, m - first)
        params = {
            "n0": outs[0],
            "n1": outs[1],
            "n2": outs[2],
            "strip1": ALL if swiglu else ends[0],
            "strip2": ALL if swiglu else ends[1] if len(widths) > 1 else ends[0] + ALL,
            "up_strip": strips[0],
            "rows": live,
            "out_row": first,
            "bias": ALL if form == "bias" else 0,
            "residual": ALL if form == "residual" else 0,
            "eps": 0.25 if form == "norm" else 0.0,
        }
        consts = {
            "K": k,
            "G": group,
            "LANES": 8,
            "PARTS": 1,
            "ROWS": rows,
            "SPLITS": 1,
            "STRIPS": 2,
            "WINDOW": window,
            "UNROLL": 2 if m == 1 and group == 64 else 1,
            "NORM": int(form == "norm" and m == 1),
            "NORM_SIZE": k // 4 if form == "norm" and m == 1 else 1,
            "SWIGLU": int(swiglu),
        }
        grid = (strips[0] if swiglu else up(sum(strips), 2), 1, up(live, rows))
        found.append({"params": params, "grid": grid, "consts": consts, "at": (first * k * 4, window * k * 4)})
    return found


def seen(step: Step) -> dict[str, object]:
    ((_, window),) = step.windows
    numbers = {name: value for name, value in step.consts if not isinstance(value, str)}
    at = (window.offset, window.nbytes)
    return {"params": dict(step.params), "grid": step.grid, "consts": numbers, "at": at}


FORMS = [
    *itertools.product(("plain", "bias", "norm"), [(48,), (29,), (96, 32, 36), (576,)]),
    *itertools.product(("residual",), [(48,), (29,), (576,)]),
    ("swiglu", (44, 44)),
]


@pytest.mark.parametrize(("form", "widths"), FORMS)
@pytest.mark.parametrize(("k", "group"), [(64, 32), (576, 32), (1536, 64)])
@pytest.mark.parametrize("m", [1, 2, 3, 9, 64, 131])
def test_every_field(m: int, k: int, group: int, widths: tuple[int, ...], form: str) -> None:
    steps = q4.linear_steps(
        m,
        k,
        group,
        widths,
        LIMITS,
        outs=[f"out{i}" for i in range(1 if form == "swiglu" else len(widths))],
        bias=form == "bias",
        norm="norm" if form == "norm" else None,
        eps=0.25 if form == "norm" else 0.0,
        residual="res" if form == "residual" else None,
        swiglu=form == "swiglu",
    )
    if form == "norm" and m > 1:
        norm, *steps = steps
        assert (norm.kernel, norm.grid) == ("rms_norm_vec4", (m, 1, 1))
        assert dict(norm.params) == {"rows": m, "width": k // 4, "eps": 0.25}
    assert [seen(step) for step in steps] == expected(m, k, group, widths, form)
