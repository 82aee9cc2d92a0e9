"""The dispatches of 4-bit linears, field by field, for more shapes than there is time to run."""

from __future__ import annotations

import itertools

import pytest

from webgpu_run.ops.limits import GPU, SOFTWARE, Limits
from webgpu_run.ops.q4_activations import Linear
from webgpu_run.ops.q4_dispatch import linear_steps

from helpers import fields_q4

LIMITS = {
    "software": Limits(software=True, subgroups=True, uniform_align=32, max_texture=16384, profile=SOFTWARE),
    "gpu": Limits(profile=GPU),
    "small": Limits(profile=GPU, max_workgroups=13, max_invocations=64, max_workgroup_bytes=8192, max_texture=512),
}


FORMS = [
    *itertools.product(("plain", "bias", "norm", "round", "round+norm"), [(48,), (29,), (96, 32, 36), (576,)]),
    *itertools.product(("residual",), [(48,), (29,), (576,)]),
    ("swiglu", (44, 44)),
]


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize(("form", "widths"), FORMS)
@pytest.mark.parametrize(("k", "group"), [(64, 32), (576, 32), (1536, 64)])
@pytest.mark.parametrize("m", [1, 2, 3, 9, 64, 131])
def test_every_field(m: int, k: int, group: int, widths: tuple[int, ...], form: str, kind: str) -> None:
    eps = 0.25 if "norm" in form else 0.0
    linear = Linear(
        k,
        group,
        widths,
        outs=tuple(f"out{i}" for i in range(1 if form == "swiglu" else len(widths))),
        bias=form == "bias",
        norm="norm" in form,
        eps=eps,
        residual=form == "residual",
        swiglu=form == "swiglu",
        rounded="round" in form,
    )
    steps = linear_steps(linear, m, LIMITS[kind])
    want = fields_q4.expected(m, k, group, widths, LIMITS[kind], form.split("+"), eps)
    assert [fields_q4.seen(step) for step in steps] == want
