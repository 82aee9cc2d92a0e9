"""The table of decode steps in bench/README.md is what the plans say."""

from __future__ import annotations

from pathlib import Path

from helpers.decode_plans import table


def test_the_table_of_decode_steps() -> None:
    """After a change of plans: print `table()` and paste it."""
    page = (Path(__file__).parents[1] / "bench" / "README.md").read_text("utf-8")
    assert "\n".join(table()) in page
