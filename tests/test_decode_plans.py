"""The table of decode steps in bench/README.md is what the plans say."""

from __future__ import annotations

from pathlib import Path

import pytest

from webgpu_run.debug.kernels import PROFILES
from webgpu_run.formats import pte
from webgpu_run.graph.lower import planned

from helpers.decode_plans import decode_steps, table


def test_the_table_of_decode_steps() -> None:
    """After a change of plans: print `table()` and paste it."""
    page = (Path(__file__).parents[1] / "bench" / "README.md").read_text("utf-8")
    assert "\n".join(table()) in page


@pytest.mark.parametrize("profile", PROFILES)
def test_rounded_rows_take_no_dispatch(profile: str) -> None:
    """Two layers of 8-bit activations: rows are rounded where they are multiplied."""
    (delegate,) = pte.load(Path(__file__).parent / "fixtures" / "tiny_8da4w.pte").method(None).delegates
    kernels = [step.kernel for step in decode_steps(planned(delegate, PROFILES[profile])) if "pick" not in step.kernel]
    layers = [k for k in kernels if not k.startswith(("embedding", "copy"))][:-1]  # the last is the head
    assert len(layers) == 2 * 5
