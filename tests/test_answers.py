"""What an evaluation harness asks of a model. `tests/tools/harness.py` asks through EleutherAI's harness itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from webgpu_run import load
from webgpu_run.bench.answers import Answers

from helpers.language import FIXTURES, folder

CAPACITY = 128  # of the fixture


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return Answers(folder(tmp_path_factory.mktemp("model")))


def log_p(before: Sequence[int], after: Sequence[int]) -> float:
    """By calls with one token each."""
    plain, ids, total = load(FIXTURES / "tiny_dyn.pte"), [*before, *after], 0.0
    for at, (token, following) in enumerate(itertools.pairwise(ids)):
        row = plain.run([np.array([[token]]), np.array([at])])[0].reshape(-1).astype(np.float64)
        if at >= len(before) - 1:
            total += row[following] - np.logaddexp.reduce(row)
    return total


def test_likelihood(answers: Answers) -> None:
    encode = answers.tokenizer.encode_plain
    wanted = log_p(encode("the"), encode(" cat sat"))
    assert answers.likelihood("the", " cat sat") == (pytest.approx(wanted, abs=0.01), False)
    assert answers.likelihood("the ", "cat sat") == answers.likelihood("the", " cat sat")
    assert answers.likelihood("", "the")[0] == pytest.approx(log_p([answers.prefix], encode("the")), abs=0.01)
    assert answers.likelihood("the", "") == (0.0, True)


def test_greedy_reply_is_the_likeliest_continuation(answers: Answers) -> None:
    encode = answers.tokenizer.encode_plain
    pairs = [(prompt, answers.reply(prompt, {"max_gen_toks": 1})) for prompt in ("the", "a cat", "if", "7", "sun!")]
    whole = [(p, r) for p, r in pairs if encode(p + r)[:-1] == encode(p)]  # others are a part of a character
    assert whole
    assert all(answers.likelihood(prompt, reply)[1] for prompt, reply in whole)


def test_rolling_likelihood_scores_every_token_once(answers: Answers) -> None:
    text = "the cat sat on the mat, and " * 12
    ids = answers.tokenizer.encode_plain(text)
    assert CAPACITY < len(ids) < 2 * CAPACITY
    rest = len(ids) - CAPACITY
    wanted = log_p([answers.prefix], ids[:CAPACITY]) + log_p(ids[-CAPACITY - 1 : -rest], ids[-rest:])
    assert answers.rolling_likelihood(text) == pytest.approx(wanted, rel=1e-4)


def test_reply_ends_before_a_stop_string(answers: Answers) -> None:
    whole = answers.reply("the cat", {"max_gen_toks": 24})
    stop = whole[5:7]
    for until in (stop, [stop]):
        assert answers.reply("the cat", {"max_gen_toks": 24, "until": until}) == whole[: whole.index(stop)]
    # a prompt that leaves no room is cut at its start
    assert len(answers.tokenizer.encode_plain(answers.reply("the cat " * 100, {"max_gen_toks": 4}))) >= 1
