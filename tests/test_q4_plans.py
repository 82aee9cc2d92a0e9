"""The dispatches of 4-bit linears, field by field, for more shapes than there is time to run."""

from __future__ import annotations

import itertools

import pytest

from webgpu_run.debug.kernels import PROFILES
from webgpu_run.ops.limits import GPU, PLAIN, SHORT, SOFTWARE, WIDE, Limits, Profile
from webgpu_run.ops.q4_activations import Linear
from webgpu_run.ops.q4_dispatch import linear_steps
from webgpu_run.ops.q4_layout import fits
from webgpu_run.shapes import prod

from helpers import fields_q4

LIMITS = {
    "software": Limits(software=True, subgroups=True, uniform_align=32, max_texture=16384, profile=SOFTWARE),
    "short": Limits(software=True, subgroups=True, uniform_align=256, max_texture=8192, profile=SHORT),
    "wide": Limits(software=True, subgroups=True, max_texture=8192, profile=WIDE),
    "plain": Limits(software=True, profile=PLAIN),
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
@pytest.mark.parametrize(("k", "group"), [(64, 32), (576, 32), (1536, 64), (18944, 128)])
@pytest.mark.parametrize("m", [1, 2, 3, 9, 17, 64, 131])
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


@pytest.mark.parametrize("profile", [SOFTWARE, SHORT, WIDE, PLAIN], ids=lambda p: p.name)
@pytest.mark.parametrize("align", [32, 64, 256])
def test_windows_begin_where_a_uniform_may(align: int, profile: Profile) -> None:
    limits = Limits(software=True, subgroups=profile.shuffle, uniform_align=align, profile=profile)
    ks = [k for k in range(32, 34_000, 32 * 37) if fits(k, 32, (48,), limits)]
    assert len(ks) > 3
    assert ks[-1] * 4 > limits.max_uniform
    for k, m, norm, rounded in itertools.product(ks, (1, 2, 5, 17), (False, True), (False, True)):
        for step in linear_steps(Linear(k, 32, (48,), norm=norm, rounded=rounded), m, limits):
            assert all(w.offset % align == 0 and w.nbytes <= limits.max_uniform for _, w in step.windows), (k, m, step)


GPUS = [name for name in PROFILES if name.startswith("gpu")]


@pytest.mark.parametrize("profile", GPUS)
@pytest.mark.parametrize("n", [4, 192, 576, 960, 2048, 3072, 16384, 49152])
@pytest.mark.parametrize(("k", "group"), [(576, 32), (2048, 32), (8192, 128), (18944, 32)])
def test_workgroups_of_one_row(k: int, group: int, n: int, profile: str) -> None:
    """At least 128 for 2048 columns, and one for each 4 columns where there are few."""
    limits = PROFILES[profile]
    assert fits(k, group, (n,), limits)
    (step,) = linear_steps(Linear(k, group, (n,), residual=True), 1, limits)
    assert step.kernel == ("linear_q4gsw_few" if n >= 1024 else "linear_q4gsw_narrow")
    assert prod(step.grid) >= min(128, n // 4)
    invocations = dict(step.consts)["SPLITS"] * dict(step.consts)["QUADS"]
    assert invocations <= (160 if k == 18944 else 128)  # more of them divide 592 blocks evenly
    assert fields_q4.seen(step) == fields_q4.expected(1, k, group, (n,), limits, ("residual",))[0]


@pytest.mark.parametrize("profile", GPUS)
@pytest.mark.parametrize("m", range(2, 17))
@pytest.mark.parametrize("k", [576, 2048, 18944])
def test_few_rows_read_weights_once_or_twice(k: int, m: int, profile: str) -> None:
    """Once for up to 8 rows, twice for up to 16: the x axis of the grid has the groups of rows."""
    (step,) = linear_steps(Linear(k, 32, (2048,)), m, PROFILES[profile])
    assert step.kernel == "linear_q4gsw_few"
    assert step.grid[0] == (1 if m <= 8 else 2)
    assert fields_q4.seen(step) == fields_q4.expected(m, k, 32, (2048,), PROFILES[profile])[0]


@pytest.mark.parametrize(
    ("m", "n", "tall"), [(17, 2048, 4), (64, 2048, 4), (64, 8192, 8), (33, 8192, 8), (32, 8192, 4)]
)
def test_tiles_by_shape(m: int, n: int, tall: int) -> None:
    """64 rows where there are 128 such tiles, 32 elsewhere."""
    (step,) = linear_steps(Linear(2048, 32, (n,)), m, PROFILES["gpu"])
    assert (step.kernel, dict(step.consts)["TALL"]) == ("linear_q4gsw_tiled", tall)
    assert step.grid == (-(-m // (8 * tall)), n // 64, 1)
