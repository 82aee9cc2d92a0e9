"""Tools that name functions of ours still find them."""

from __future__ import annotations

import pytest
from tools import mutate_modules

MUTANTS = (*mutate_modules.passes(), *mutate_modules.MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_a_mutant_changes_its_module(mutant: mutate_modules.Mutant) -> None:
    """If a function was renamed: name it anew in tests/tools/mutate_modules.py."""
    source = (mutate_modules.ROOT / mutant.path).read_text()
    mutated = mutant.apply(source)
    assert mutated != source
    compile(mutated, mutant.path, "exec")
