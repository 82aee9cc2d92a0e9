"""Decode steps in one submission give the same ids as steps in submissions of their own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from webgpu_run.errors import DeviceError, ShapeError
from webgpu_run.gpu.callstats import CallStats
from webgpu_run.gpu.device import Device
from webgpu_run.llm.sampling import Sampler
from webgpu_run.llm.session import Session, TokenStream
from webgpu_run.ops.choice import GREEDY
from webgpu_run.ops.plan import TURNS
from webgpu_run.runtime.decode import AHEAD_NS, TOGETHER_NS, Decoder
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import load
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array

from helpers import graphs
from helpers.graphs import bits, run
from helpers.kinds import KINDS, open_kind
from helpers.language import FIXTURES

PROMPT = [0, 320, 350, 459, 296, 397, 426, 115, 28]
DRAWN = Sampler(1.5, 300, 0.99, 0.0005, 11)


@pytest.fixture(scope="module")
def model(device: Device) -> Model:
    return load(FIXTURES / "tiny_dyn.pte", device=device)


class Counted:
    """How many turns each submission has."""

    def __init__(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[int] = []
        real = model.start

        def start(*given: Any, **named: Any) -> Any:
            started = real(*given, **named)
            self.turns.append(started.turns)
            return started

        monkeypatch.setattr(model, "start", start)


def paced(monkeypatch: pytest.MonkeyPatch, step_ns: int = 1) -> None:
    """Every step takes so long, from the first on: one that takes no time goes together with as many as can be."""
    fixed = property(lambda self: step_ns, lambda self, measured: None)
    monkeypatch.setattr(Decoder, "_step_ns", fixed, raising=False)


def said(session: Session, sampler: Sampler, limit: int = 30) -> list[int]:
    return list(TokenStream(session, PROMPT, sampler, limit=limit))


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("sampler", [Sampler(), DRAWN], ids=["greedy", "drawn"])
def test_as_many_steps_as_a_reader_waits_for(
    ahead: bool, sampler: Sampler, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Session(model, observers=[lambda call: None])
    want = said(alone, sampler)
    seen = Counted(model, monkeypatch)
    session = Session(model, ahead=ahead)
    session.prefill([1])
    session.advance(2, sampler, 0, left=9)
    assert seen.turns == [1] * (1 + ahead)  # how long a step takes is not known before the first is read
    session.rewind(0)
    together = AHEAD_NS if ahead else TOGETHER_NS
    for step_ns, most in ((together // 1000, TURNS), (together // 3, 3), (together * 2, 1)):
        seen.turns.clear()
        paced(monkeypatch, step_ns)
        assert said(session, sampler) == want
        assert seen.turns == [most] * (29 // most) + [29 % most] * (29 % most > 0)
        session.rewind(0)
    calls = [c for c in session.calls if c.phase == "decode"]
    assert {(c.tokens, c.stats.dispatches, c.stats.read_bytes) for c in calls} == {
        (c.tokens, c.stats.dispatches, c.stats.read_bytes) for c in alone.calls if c.phase == "decode"
    }
    assert [c.position for c in calls[1:]] == [*range(len(PROMPT), len(PROMPT) + 29)] * 3


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_of_file_decodes_as_the_host_would(
    name: str, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's choice after each single call is the reference: it has no submissions with several steps."""
    model = open_kind(name, device)
    session = Session(model)
    prompt = [i % session.interface.vocab for i in PROMPT]
    want = [int(session.prefill(prompt).argmax())]
    while len(want) < 9:
        want.append(int(session.step(want[-1:]).argmax()))
    for together in (1, 2, 5):
        paced(monkeypatch, TOGETHER_NS // together)
        assert list(TokenStream(Session(model, ahead=False), prompt, Sampler(), limit=len(want))) == want


@pytest.mark.parametrize("ahead", [False, True])
def test_what_was_run_and_not_asked_for_is_forgotten(
    ahead: bool, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Session(model, observers=[lambda call: None])
    ids = said(alone, Sampler())
    logits = alone.step(ids[-1:])
    best = int(logits.argmax())
    after = alone.advance(best, Sampler(), 31)
    paced(monkeypatch)
    for end in (2, 9, 10):
        session = Session(model, ahead=ahead)
        reply = TokenStream(session, PROMPT, Sampler(), limit=30, eos=frozenset((ids[end],)))
        assert (list(reply), reply.reason) == (ids[: ids.index(ids[end])], "eos")
        assert session.ids == PROMPT + reply.ids
        session.rewind(len(PROMPT))
        assert session.advance(ids[0], Sampler(), 1, left=9) == ids[1]
        np.testing.assert_allclose(session.prefill(ids[1:]), logits, atol=1e-4)
        assert session.advance(best, Sampler(), 31) == after


@pytest.mark.parametrize("ahead", [False, True])
def test_no_step_past_the_context(ahead: bool, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch)
    seen = Counted(model, monkeypatch)
    session = Session(model, ahead=ahead)
    session.prefill([1] * 106)
    reply = TokenStream(session, [2, 3], Sampler(), limit=500)
    assert len(list(reply)) == 128 - 108 + 1
    assert (reply.reason, session.room, sum(seen.turns)) == ("context", 0, 20)
    with pytest.raises(ShapeError):
        session.advance(5, Sampler(), 0, left=3)


def test_a_position_that_decides_a_plan_goes_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    want = said(Session(model), Sampler())
    paced(monkeypatch)
    monkeypatch.setattr(model.runners[0].engine, "only_slots", False)
    seen = Counted(model, monkeypatch)
    assert said(Session(model), Sampler()) == want
    assert seen.turns == [1] * 29


def long(device: Device) -> Runner:
    runner = graphs.transformer(40, 300).runner(device, fuse=True)
    for at in range(0, 120, 40):
        run(runner, [np.arange(40, dtype=np.int32)[None] % 60, np.array([at], np.int32)])
    return runner


def steps(runner: Runner, position: int, count: int, words: Array = GREEDY, *, from_device: bool = False) -> list[int]:
    given = [(np.array([[7]], np.int32), np.array([position + k], np.int32), words) for k in range(count)]
    stats = CallStats()
    found: list[int] = (
        runner.executor.collect(runner.start(given, stats, from_device=from_device), stats)[0].reshape(-1).tolist()
    )
    return found


def one_by_one(runner: Runner, position: int, count: int, words: Array = GREEDY) -> list[int]:
    return [steps(runner, position + k, 1, words, from_device=k > 0)[0] for k in range(count)]


@pytest.mark.parametrize("words", [GREEDY, DRAWN.words(3)], ids=["greedy", "drawn"])
def test_steps_into_rows_that_are_not_bound_yet(words: Array, device: Device) -> None:
    """The cache is bound as far as the last of them goes before the first is run."""
    runner, other = long(device), long(device)
    want = one_by_one(other, 124, TURNS, words)
    assert steps(runner, 124, TURNS, words) == want
    assert {image.used for image in runner.executor.resident.images} == {2}
    assert steps(runner, 140, 3, words, from_device=True) == [
        steps(other, 140 + k, 1, words, from_device=True)[0] for k in range(3)
    ]
    following = [np.array([[9, 11]], np.int32), np.array([143], np.int32)]
    assert bits(run(runner, following)) == bits(run(other, following))


@pytest.mark.parametrize("words", [GREEDY, DRAWN.words(3)], ids=["greedy", "drawn"])
def test_steps_together_are_one_pass(words: Array, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy comes between two steps; one at the end takes the ids of all of them."""
    runner, seen = long(device), []
    steps(runner, 120, 1, words)
    alone = len(runner.executor.commands())
    real = runner.executor.device.call

    def watched(*parts: Any) -> Any:
        kept = [(before, list(dispatches), after) for before, dispatches, after in parts]
        seen.extend(kept)
        return real(*kept)

    monkeypatch.setattr(runner.executor.device, "call", watched)
    assert len(set(steps(runner, 121, TURNS, words))) > 1
    ((before, dispatches, after),) = seen
    assert (len(before), len(dispatches), [copy[4] for copy in after]) == (0, alone * TURNS, [4 * TURNS])


@pytest.mark.parametrize("name", ["bind_group", "write", "buffer", "call"])
def test_steps_together_that_fail(name: str, device: Device) -> None:
    """At any use of the device: a call of one step after it finds the slots that it should."""
    other = long(device)
    want, tried = one_by_one(other, 124, 4), 0
    while True:
        mine = copy.copy(device)
        runner, left = long(mine), [tried]
        real = getattr(mine, name)

        def failing(*given: Any, real: Any = real, left: list[int] = left, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise DeviceError("injected")
            return real(*given, **named)

        setattr(mine, name, failing)
        try:
            assert steps(runner, 124, 4) == want
            break
        except DeviceError:
            tried += 1
        delattr(mine, name)
        ended = [np.array([[7]], np.int32), np.array([127], np.int32)]  # where the failed ones would have
        assert bits(run(runner, ended)) == bits(run(long(device), ended))
        assert steps(runner, 124, 4) == want
    assert tried >= 1
