"""webgpu-bench agree: profiles of one adapter, a model that computes something else, and an op that is off."""

from __future__ import annotations

import json
import sys

import pytest

from webgpu_run.bench import agree
from webgpu_run.bench.agree import Subject, judged, profiles
from webgpu_run.debug import stepping
from webgpu_run.formats import pte
from webgpu_run.gpu.device import Device
from webgpu_run.ops.limits import PROFILES

from helpers.command import HERE, execute

FIXTURES = HERE / "fixtures"
PROMPT = [5, 17, 3, 99, 200]


def test_all_profiles_of_the_adapter_agree() -> None:
    command = (sys.executable, "-m", "webgpu_run.cli.bench", "agree", FIXTURES / "tiny_short.pte")
    ran = execute(*command, "--device", "vulkan", "-n", "4", "-o", "json")
    assert ran.code == 0, ran.err
    rows = json.loads(ran.out)
    assert {row["profile"] for row in rows} == {p.name for p in PROFILES}
    assert [row["verdict"] for row in rows] == ["agrees"] * len(PROFILES)
    assert [row["is_base"] for row in rows] == [True] + [False] * (len(PROFILES) - 1)
    assert all(row["distance"] < 1e-4 and row["first_op"] is None for row in rows)


def test_another_token_is_named(device: Device) -> None:
    base, other = (Subject(pte.load(FIXTURES / f"{name}.pte"), device) for name in ("tiny_8da4w", "tiny_emb8"))
    before = [base.continued(PROMPT, 6)]
    assert judged(base, base, before, 6) == {"verdict": "agrees", "first_token": None, "distance": 0.0, "ties": 0}
    row = judged(other, base, before, 6)
    assert row["verdict"] == "differs"
    at, tokens = row["first_token"]["index"], other.continued(PROMPT, 6).tokens
    assert row["first_token"] == {"prompt": 5, "index": at, "got": tokens[at], "want": before[0].tokens[at]}
    assert tokens[:at] == before[0].tokens[:at]


def test_a_tie_is_no_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens that the base itself cannot tell apart, within the rounding of the logits."""
    base = Subject(pte.load(FIXTURES / "tiny_8da4w.pte"), device)
    before = [base.continued(PROMPT, 3)]
    other = before[0].tokens[0] + 1
    logits = before[0].logits.copy()
    logits[other] = logits.max()
    monkeypatch.setattr(agree, "ROUNDING", 10.0)
    monkeypatch.setattr(base, "logits", lambda ids: logits, raising=False)
    swapped = [agree.Continued(tuple(PROMPT), (other, *before[0].tokens[1:]), logits)]
    assert judged(base, base, swapped, 3)["ties"] == 1


def test_an_op_that_is_off_is_named(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(pte.load(FIXTURES / "tiny_dyn.pte"), next(profiles(device)))
    assert subject.check(PROMPT, 1) is None
    monkeypatch.setattr(stepping, "SPREAD", 0.0)  # then rounding is too much
    problem = subject.check(PROMPT, 1)
    assert problem
    assert "is off: GPU" in problem
