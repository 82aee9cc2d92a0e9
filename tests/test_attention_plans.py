"""The dispatches of attention at the shapes of real models: every field equals an independent computation."""

from __future__ import annotations

import pytest

from webgpu_run.ops import attention, attention_q4gsw, sdpa, sdpa_shares
from webgpu_run.ops.limits import GPU, PLAIN, SOFTWARE, Limits
from webgpu_run.ops.spec import Case, load_all

from helpers import opcheck
from helpers.graphs import ANY

SHAPES = {"smollm2": (9, 3, 64), "llama": (32, 8, 64), "qwen2.5": (14, 2, 64), "wide": (8, 8, 128), "one": (20, 1, 32)}
LIVE = (1, 2, 5, 64, 131)
CASES = [
    pytest.param(name, case, id=f"{name}-{shape}")
    for shape, (heads, kv, dim) in SHAPES.items()
    for name, case in (
        ("wr.attention", attention._case(300, 2048, heads, kv, dim, 3, *LIVE, halves=shape == "qwen2.5")),
        ("sdpa_with_kv_cache.default", sdpa._case(300, 700, heads, kv, dim, 3, *LIVE)),
        (
            "wr.attention_q4gsw",
            attention_q4gsw._case(300, 192, heads, kv, dim, 2048, 3, *LIVE, bias=shape == "qwen2.5"),
        ),
    )
]
MACHINES = {
    "gpu": Limits(),
    "gpu-subgroups": Limits(subgroups=True, profile=GPU),
    "software": Limits(software=True, subgroups=True, uniform_align=32, max_texture=16384, profile=SOFTWARE),
    "few-layers": Limits(subgroups=True, uniform_align=32, max_texture=16384, max_layers=7, profile=SOFTWARE),
    "plain": Limits(software=True, uniform_align=32, profile=PLAIN),
    "f16": Limits(kv="f16"),
    "software-f16": Limits(subgroups=True, uniform_align=32, max_texture=16384, profile=SOFTWARE, kv="f16"),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "case"), CASES)
def test_every_field(name: str, case: Case, machine: str) -> None:
    op, limits = load_all()[name], MACHINES[machine]
    for live in opcheck.lives(case) if opcheck.must_run(op, case, limits) else ():
        opcheck.check_expected(op, case, live, limits)


@pytest.mark.parametrize("machine", MACHINES)
def test_parts_fit_their_scratch(machine: str) -> None:
    """At every number of rows up to the largest, what parts of the context give has room in what was allocated."""
    limits = MACHINES[machine]
    for heads, kv, dim in SHAPES.values():
        cache = (1, 2048, kv, dim)
        room = sdpa_shares.part_resources((1, 300, heads, dim), cache, limits)
        for seq in range(1, 301):
            splits = sdpa_shares.shares((1, seq, heads, dim), cache, limits).splits
            if splits > 1:
                assert seq * heads * splits * dim * 4 <= room["part"].nbytes
                assert seq * heads * splits * 8 <= room["stat"].nbytes


def test_few_heads_fill_a_gpu() -> None:
    """One token over a long context is shared by many workgroups, and by no more where its heads are many."""
    args = [
        opcheck.args_of(load_all()["wr.attention"], case)
        for case in (
            attention._case(1, 4096, 9, 3, 64, 0),
            attention._case(1, 4096, 32, 8, 64, 0),
            attention._case(300, 4096, 9, 3, 64, 0),
        )
    ]
    grids = [load_all()["wr.attention"].plan(a, Limits()).steps[1].grid for a in args]
    assert grids == [(3, 1, 64), (8, 1, 32), (87, 1, 2)]  # 300 rows are 29 tiles of each key head
    assert ANY.profile.fill == PLAIN.fill == 1  # two dispatches cost a software adapter more than they share out
