"""Speculation by lookup: the same ids, guesses that are only tried while they pay, and choices that are sure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from webgpu_run import LLM
from webgpu_run.formats import pte
from webgpu_run.gpu.device import Device
from webgpu_run.llm.lookup import LONGEST, LOSS, MOST_ROWS, ROUTE_ERROR, ROWS, Gate, Guesser, LookupDecoder
from webgpu_run.llm.session import Session
from webgpu_run.ops.choice import GREEDY, choose, choose_surely, draw_words
from webgpu_run.runtime.model import Model

from helpers.command import webgpu_run
from helpers.language import FIXTURES

REPEATING = [5, 6, 7, 8, 9, 10, 11, 12, 13] * 3
SAMPLERS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "seed": 3},
    {"temperature": 1.2, "min_p": 0.05, "seed": 4},
)


class Open(Gate):
    """Tries every guess."""

    def rows(self, agreeing: int, most: int, *, after_guess: bool) -> int:
        return max((rows for rows in ROWS if rows <= most), default=0)


class Oracle(Guesser):
    """Knows the reply; every seventh of its tokens is wrong."""

    def __init__(self, text: list[int]) -> None:
        self.text = text

    def guess(self, ids: Sequence[int], count: int) -> tuple[list[int], int]:
        at = len(ids)
        return [token if i % 7 else (token + 1) % 512 for i, token in enumerate(self.text)][at : at + count], 4


@pytest.fixture(scope="module")
def plain(device: Device) -> LLM:
    return LLM(FIXTURES / "tiny_dyn.pte", device=device)


@pytest.fixture
def guessing(device: Device, monkeypatch: pytest.MonkeyPatch) -> LLM:
    """Each call is one step or one guess, and every guess is tried."""
    llm = LLM(FIXTURES / "tiny_dyn.pte", device=device, lookup=True)
    decoder_of(llm).gate = Open()
    monkeypatch.setattr(Model, "most_turns", 1)
    return llm


def decoder_of(llm: LLM) -> LookupDecoder:
    assert isinstance(llm.session.decoder, LookupDecoder)
    return llm.session.decoder


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_the_ids_are_those_without_lookup(
    plain: LLM, guessing: LLM, sampler: dict[str, Any], ahead: bool, is_known: bool
) -> None:
    decoder = decoder_of(guessing)
    decoder.ahead = ahead
    for prompt in (REPEATING, [*REPEATING, 77, 78, *REPEATING[:5]], [3, 3, 3, 3]):
        options = {"max_new_tokens": 60, "ignore_eos": True, **sampler}
        want, got = plain.generate(prompt, **options), guessing.generate(prompt, **options)
        if is_known:
            decoder._guesser = Oracle([*prompt, *want.ids])
        assert got.ids == want.ids
        assert (got.reason, guessing.session.ids) == (want.reason, plain.session.ids)
        assert len(got.calls) == len(want.calls)  # every token has its share of a call
    if is_known:
        assert decoder.gate.calls > 20
        assert decoder.gate.accepted > 60


def test_a_reply_that_is_stopped_inside_a_guess_can_be_continued(plain: LLM, guessing: LLM) -> None:
    texts: list[tuple[list[str], list[int], int]] = []
    for llm in (plain, guessing):
        if llm is guessing:
            decoder_of(llm)._guesser = Oracle(texts[0][1] + [0] * 20)
        stream = iter(llm.generate([3, 3, 3, 3], max_new_tokens=50, ignore_eos=True))
        pieces = [next(stream) for _ in range(30)]
        reply = llm._last
        assert reply
        reply.stop()
        ids = llm.session.ids
        after = llm.session.step([7])
        texts.append((pieces, list(ids), int(after.argmax())))
    assert texts[0] == texts[1]


def test_without_a_guess_every_call_is_bit_for_bit_the_same(device: Device) -> None:
    program = pte.load(FIXTURES / "tiny_dyn.pte")
    plain, verifying = Model(program, device), Model(program, device, verify=MOST_ROWS)
    assert verifying.most_verified == MOST_ROWS
    rng = np.random.default_rng(0)
    position = 0
    for count in (13, 1, 3, 1, 8, 20, 1):
        ids = rng.integers(0, 512, (1, count))
        a, b = (model.run([ids, np.array([position])])[0] for model in (plain, verifying))
        assert np.array_equal(a, b)
        assert a.shape == b.shape
        position += count
        verifying.verify(rng.integers(0, 512, 4).tolist(), position)  # rows beyond the position are not read


@pytest.mark.parametrize("kv", ["f32", "f16"])
@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_full", "tiny_8da4w", "bundled"])
def test_each_row_is_that_of_a_step(name: str, kv: str, device: Device) -> None:
    path = Path("webgpu_run/bundled/model.pte") if name == "bundled" else FIXTURES / f"{name}.pte"
    model = Model(pte.load(FIXTURES.parents[1] / path), device, verify=MOST_ROWS, kv=kv)
    vocab = model.outputs[0].dims[-1]
    ids = np.random.default_rng(1).integers(0, vocab, 20)
    model.run([ids[None, :12], np.array([0])])
    for count in (2, 4, 8):
        got = model.verify(ids[12 : 12 + count].tolist(), 12)
        assert got.shape == (count, vocab)
        for k, row in enumerate(got):
            want = model.run([ids[None, 12 + k : 13 + k], np.array([12 + k])])[0].reshape(-1, vocab)[-1]
            assert np.abs(row - want).max() <= ROUTE_ERROR[kv] * np.abs(want).max()


def perturbed(row: np.ndarray[Any, Any], error: float, rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
    most = np.abs(row).max() * error
    for _ in range(20):
        yield row + rng.choice((-1, 0, 1), row.size).astype(np.float32) * most * 0.999
        yield row + rng.uniform(-most, most, row.size).astype(np.float32)


@pytest.mark.parametrize(
    "words",
    [
        lambda i: GREEDY,
        lambda i: draw_words(1.0, 0, 1.0, 0.0, 1, i),
        lambda i: draw_words(0.7, 5, 0.9, 0.0, 1, i),
        lambda i: draw_words(1.0, 0, 0.6, 0.0, 1, i),
        lambda i: draw_words(1.3, 0, 1.0, 0.1, 1, i),
    ],
    ids=["greedy", "drawn", "top-k", "top-p", "min-p"],
)
def test_a_sure_choice_is_the_same_for_all_logits_within_the_error(words: Callable[[int], Any]) -> None:
    rng = np.random.default_rng(0)
    sure = unsure = changed = 0
    for i in range(400):
        row = (rng.standard_normal(int(rng.integers(2, 60))) * rng.choice((0.5, 3.0))).astype(np.float32)
        error = float(rng.choice((1e-4, 1e-3, 1e-2)))
        choice = choose_surely(row, words(i), error)
        others = {choose(other, words(i)) for other in perturbed(row, error, rng)}
        if choice is None:
            unsure += 1
            changed += len(others) > 1
        else:
            sure += 1
            assert others == {choice} == {choose(row, words(i))}
    assert sure > 200
    assert unsure > changed > 0  # it refuses what can change, and not much more
    assert unsure < 8 * changed + 20


def test_a_row_that_is_not_finite_is_never_sure() -> None:
    for bad in (np.nan, np.inf):
        assert choose_surely(np.array([1, bad, 2], np.float32), GREEDY, 1e-3) is None


def test_guesses_are_what_followed_the_longest_match() -> None:
    guesser = Guesser()
    assert guesser.guess([1], 3) == ([], 0)
    assert guesser.guess([1, 2, 3, 4, 1, 2], 3) == ([3, 4, 1], 2)
    text = [9, 1, 2, 5, 5, 8, 1, 2, 6, 6, 9, 1, 2]
    assert guesser.guess(text, 2) == ([5, 5], 3)
    assert guesser.guess([*text, 6], 2) == ([6, 9], 3)  # the same text, longer
    assert guesser.guess([4, 7, 4, 7], 5) == ([4, 7, 4, 7, 4], 2)  # beyond the end it repeats itself
    assert guesser.guess([1, 2, 3], 3) == ([], 0)  # another text: nothing of the last one is left
    assert guesser.guess([7] * 40, 2) == ([7, 7], LONGEST)


def simulate(share: float, cost: float, steps: int = 400, *, way_back: float = 0.3) -> float:
    """The speed with a gate over that without, where each guess is right with this probability."""
    gate, rng, unit = Gate(), np.random.default_rng(0), 1_000_000
    done, spent, after = 0, 0.0, False
    while done < steps:
        rows = gate.rows(4, MOST_ROWS, after_guess=after)
        if rows:
            right = next((k for k in range(rows - 1) if rng.random() >= share), rows - 1)
            wall = (1 + (cost - 1) * (rows - 1) / 3) * unit
            gate.verified(4, rows, right, right + 1, int(wall), is_first=False, after_guess=after)
            done, after = done + right + 1, True
        else:
            wall = (1 + way_back * after) * unit
            gate.stepped(int(wall), 1, after_guess=after)
            gate.learn(4, int(rng.random() < share), 1)
            done, after = done + 1, False
        spent += wall
    return done * unit / spent


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("cost", [1.2, 1.8, 2.6, 4.0])
def test_a_gate_costs_little_and_stays_open_where_guesses_pay(share: float, cost: float) -> None:
    speed = simulate(share, cost)
    assert speed > 1 - LOSS - 0.015
    if share > 0.9 and cost < 2:
        assert speed > 1.5


def test_a_gate_that_closed_opens_again() -> None:
    gate = Gate()
    for _ in range(20):
        gate.stepped(1000, 1, after_guess=False)
    while rows := gate.rows(4, MOST_ROWS, after_guess=False):
        gate.verified(4, rows, 0, 1, 2500, is_first=False, after_guess=False)
        gate.stepped(1000, 1, after_guess=True)
    for _ in range(500):  # guesses that would have been right open it, though none is verified
        gate.stepped(1000, 1, after_guess=False)
        assert not gate.rows(4, MOST_ROWS, after_guess=False)
        gate.learn(4, 0, 1)
    for _ in range(200):
        gate.stepped(1000, 1, after_guess=False)
        gate.learn(4, 1, 1)
        if gate.rows(4, MOST_ROWS, after_guess=False):
            return
    pytest.fail("it never tried again")


def test_ordinary_steps_show_what_guesses_are_worth(plain: LLM, guessing: LLM) -> None:
    class Shut(Gate):
        """Tries no guess, and records what it learns."""

        seen: ClassVar[list[tuple[int, int, int]]] = []

        def rows(self, agreeing: int, most: int, *, after_guess: bool) -> int:
            return 0

        def learn(self, agreeing: int, right: int, tested: int) -> None:
            self.seen.append((agreeing, right, tested))

    prompt = [5, 6, 7]
    want = plain.generate(prompt, max_new_tokens=20, ignore_eos=True)
    want.finish()
    decoder = decoder_of(guessing)
    decoder.gate, decoder._guesser = Shut(), Oracle([*prompt, *want.ids])
    reply = guessing.generate(prompt, max_new_tokens=20, ignore_eos=True)
    reply.finish()
    assert reply.ids == want.ids
    # The first token comes from the prefill, nothing is guessed before the last, and every seventh guess is wrong.
    assert Shut.seen == [(4, int(at % 7 > 0), 1) for at in range(len(prompt) + 1, len(prompt) + 19)]


def test_a_session_without_rows_to_verify_decodes_as_ever(device: Device) -> None:
    model = Model(pte.load(FIXTURES / "tiny_static.pte"), device, verify=MOST_ROWS)
    assert model.no_verify == "the model takes a fixed number of tokens per call"
    assert not isinstance(Session(model, lookup=True).decoder, LookupDecoder)


def test_the_option() -> None:
    flags = ("--prompt-ids", "5,6,7,5,6,7", "-n", "20", "--ignore-eos")
    model = FIXTURES / "tiny_dyn.pte"
    want, got = webgpu_run(model, *flags), webgpu_run(model, *flags, "--lookup")
    assert (got.code, got.out) == (0, want.out)
    assert "note" not in got.err
    checked = webgpu_run(model, *flags, "--lookup", "--check-resize")
    assert (checked.code, checked.out) == (0, want.out)
    assert "note: --lookup has no effect: --check-resize looks at single steps" in checked.err
