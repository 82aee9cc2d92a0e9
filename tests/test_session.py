"""Sessions, sampling and text streams, in this process."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.debug.fresh_build import FreshBuilds
from webgpu_run.debug.layers import repeated
from webgpu_run.debug.stepping import Check, Stepper, check_finite
from webgpu_run.errors import CheckError, ShapeError, UnsupportedError
from webgpu_run.formats.pte import Method, Tensor
from webgpu_run.formats.vkgraph import VkTensor
from webgpu_run.gpu import executor
from webgpu_run.gpu.device import Device
from webgpu_run.llm.sampling import Sampler
from webgpu_run.llm.session import Interface, Session, TokenStream
from webgpu_run.llm.tokenizer import StopStrings, TextStream, find
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import load

from helpers.language import FIXTURES, byte_tokenizer, word_tokenizer

FILES = sorted(FIXTURES.glob("tiny_*.pte"))
PROMPT = [0, 320, 350, 459, 296, 397, 426, 115, 28]


@pytest.fixture(scope="module")
def model(device: Device) -> Model:
    return load(FIXTURES / "tiny_dyn.pte", device=device)


def said(
    session: Session, prompt: Sequence[int] = PROMPT, limit: int = 12, sampler: Sampler | None = None
) -> list[int]:
    return list(TokenStream(session, prompt, sampler or Sampler(), limit=limit))


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_short", "tiny_qwen3", "tiny_static"])
def test_prefill_in_any_chunks_gives_the_same_ids(name: str, device: Device) -> None:
    model = load(FIXTURES / f"{name}.pte", device=device)
    vocab = Session(model, ahead=True).interface.vocab
    prompt = [(7 * i * i + 3) % vocab for i in range(45)]
    told = [said(Session(model, chunk=chunk), prompt, 6) for chunk in (None, 1, 7)]
    assert told[0] == told[1] == told[2]


SAMPLERS = (
    *(Sampler(), Sampler(1.5, 300, 0.99, 0.0005, 11), Sampler(0.9, seed=4)),
    *(Sampler(repeat_penalty=1.5, repeat_last_n=9), Sampler(0.8, seed=3, repeat_penalty=1.3)),
)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_ids_chosen_by_the_device_are_those_of_the_logits(model: Model, sampler: Sampler) -> None:
    assert model.chooses
    ahead = said(Session(model, ahead=True), limit=30, sampler=sampler)
    watched = Session(model, observers=[lambda call: None])  # never a step ahead
    assert said(watched, limit=30, sampler=sampler) == ahead
    session, out = Session(model, ahead=True), []
    logits = session.prefill(PROMPT)
    for i in range(30):
        out.append(sampler.pick(logits, i, PROMPT + out))
        logits = session.step(out[-1:])
    assert out == ahead
    if sampler.recalls:
        assert out != said(Session(model), limit=30, sampler=replace(sampler, repeat_penalty=1.0))


def test_how_to_choose_is_asked_anew_every_time(model: Model) -> None:
    """Replies alternate on one model: each is the same as alone, and reads back four bytes per step."""
    samplers = [Sampler(), Sampler(1.5, seed=1), Sampler(1.5, seed=2), Sampler(1.5, 40, 0.9, seed=1)]
    alone = [said(Session(model, ahead=True), sampler=s) for s in samplers]
    assert len({tuple(ids) for ids in alone}) == len(samplers)
    for i in (0, 1, 0, 3, 2, 1, 3):
        session = Session(model, ahead=True)
        assert said(session, sampler=samplers[i]) == alone[i]
        assert {call.stats.read_bytes for call in session.calls[1:]} == {4}
    runner = model.runners[0]
    before = runner.engine.planned
    for index in range(5):
        session.advance(7, samplers[3], index, left=4 - index)
    assert runner.engine.planned == before


def test_numbers_that_stop_being_finite(device: Device, tmp_path: Path) -> None:
    """A step that gives NaN ends the reply, whoever chooses."""
    source = FIXTURES / "tiny_dyn.pte"
    delegate = load(source, device=device).method.delegates[0]
    assert delegate.graph
    table = next(c for c in delegate.graph.chain if c.name == "et_vk.embedding_q4gsw.default")
    scales = delegate.graph.values[table.args[1]]
    assert isinstance(scales, VkTensor)
    data, token = bytearray(source.read_bytes()), 9
    at = delegate.constant(scales.constant_id).offset + 4 * token * scales.dims[1]
    data[at : at + 4] = np.float32(np.nan).tobytes()
    (tmp_path / "nan.pte").write_bytes(data)
    model = load(tmp_path / "nan.pte", device=device)
    for sampler in (Sampler(), Sampler(1.0, seed=2)):
        model.reset()
        session = Session(model, ahead=True)
        session.prefill([3, 5])
        assert 0 <= session.advance(7, sampler, 0, left=0) < 512
        with pytest.raises(CheckError, match=r"gave \d+ NaN"):
            session.advance(token, sampler, 1, left=3)


def test_a_reply_can_be_taken_back(model: Model) -> None:
    session = Session(model, ahead=True)
    first = said(session)
    assert session.position == len(PROMPT) + 11
    session.rewind(len(PROMPT) - 3)
    assert said(session, PROMPT[-3:]) == first


def test_positions_and_calls(model: Model) -> None:
    session = Session(model, chunk=4, ahead=True)
    reply = TokenStream(session, PROMPT, Sampler(), limit=3)
    ids = list(reply)
    assert reply.reason == "length"
    assert [(c.phase, c.tokens, c.position) for c in session.calls] == [
        *[("prefill", 4, 0), ("prefill", 4, 4), ("prefill", 1, 8)],
        *[("decode", 1, 9), ("decode", 1, 10)],
    ]
    eos = frozenset((ids[1],))
    reply = TokenStream(Session(model, ahead=True), PROMPT, Sampler(), limit=9, eos=eos)
    assert (list(reply), reply.reason) == (ids[:1], "eos")


def test_nothing_is_run_when_tokens_do_not_fit(model: Model) -> None:
    session = Session(model, ahead=True)
    session.prefill([1] * 100)
    for bad in ([1] * 29, [512], [-1], []):
        with pytest.raises(ShapeError):
            session.prefill(bad)
    assert (session.position, len(session.calls)) == (100, 1)
    session.prefill([1] * 28)
    assert session.room == 0


def test_only_language_models_have_sessions() -> None:
    values = (Tensor("float32", (1, 8), dynamism="bound"), Tensor("float32", (1, 8)))
    with pytest.raises(UnsupportedError, match="takes float32 \\[1, ≤8\\];"):
        Interface.of(Method("forward", (0,), (1,), values, ()), {})


def test_a_stream_never_splits_a_character() -> None:
    tokenizer = byte_tokenizer()
    text = "naïve 🙂 日本語 the end"
    ids = tokenizer.encode(text).ids
    assert len(ids) > len(text)
    stream = TextStream(tokenizer.decode)
    parts = [stream.push(i) for i in ids]
    assert "".join(parts) == text
    assert stream.finish() == ""
    assert not any("\ufffd" in part for part in parts)


def test_a_stream_ends_with_what_it_has() -> None:
    tokenizer = byte_tokenizer()
    smile = tokenizer.encode("🙂").ids
    stream = TextStream(tokenizer.decode)
    assert [stream.push(i) for i in smile[:-1]] == [""] * (len(smile) - 1)
    assert "\ufffd" in stream.finish()
    lone = tokenizer.token_to_id("ÿ")  # the byte 0xff, never part of UTF-8
    stream = TextStream(tokenizer.decode)
    out = "".join(stream.push(i) for i in [lone] * 200) + stream.finish()
    assert out == "\ufffd" * 200


def test_a_stream_keeps_spaces_between_words() -> None:
    tokenizer = word_tokenizer(["a", "b", "c"])
    stream = TextStream(tokenizer.decode)
    assert "".join(stream.push(i) for i in (1, 2, 0)) == "b c a"


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_stop_strings_in_pieces(size: int) -> None:
    stops = StopStrings(["END", "EN!", ""])
    text, out = "the ENd of EN END more", ""
    for at in range(0, len(text), size):
        out += stops.push(text[at : at + size])
        if stops.found:
            break
    assert (out, stops.found) == ("the ENd of EN ", "END")
    stops = StopStrings(["END"])
    assert stops.push("the EN") + stops.finish() == "the EN"


def test_layers_are_what_repeats() -> None:
    names = ["embed", *["norm", "attn", "linear", "add"] * 3, "norm", "linear"]
    anchors = [i for i, name in enumerate(names) if name == "attn"]
    assert repeated(names, anchors) == [-1, *[0] * 4, *[1] * 4, *[2] * 4, -1, -1]
    assert repeated(names, anchors[:1]) == [-1] * len(names)


def test_sentencepiece_keeps_spaces_and_specials(tmp_path: Path) -> None:
    spm = pytest.importorskip("sentencepiece")
    text = (FIXTURES.parent / "README.md").read_text().splitlines()
    made = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=made, vocab_size=400, byte_fallback=True, minloglevel=2
    )
    (tmp_path / "tokenizer.model").write_bytes(made.getvalue())
    tokenizer = find(tmp_path / "model.pte")
    assert (tokenizer.kind, tokenizer.size) == ("sentencepiece", 400)
    ids = tokenizer.encode_prompt("the tests 🙂")
    assert ids[0] == tokenizer.id_of("<s>")
    assert tokenizer.encode_plain("<s>the") == [ids[0], *tokenizer.encode_plain("the")]
    assert tokenizer.eos_ids() == {tokenizer.id_of("</s>")}
    stream = TextStream(tokenizer.decode)
    said = "".join(stream.push(i) for i in ids[1:]) + stream.finish()
    assert said.strip() == "the tests 🙂"


def test_tiktoken_recognizes_special_tokens(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    ranks = b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256))
    (tmp_path / "tokenizer.model").write_bytes(ranks)
    tokenizer = find(tmp_path / "model.pte")
    assert (tokenizer.kind, tokenizer.size) == ("tiktoken", 512)
    assert tokenizer.encode_prompt("é") == [256, 0xC3, 0xA9]
    assert tokenizer.encode_plain("<|eot_id|>a") == [tokenizer.id_of("<|eot_id|>"), ord("a")]
    assert tokenizer.id_of("<|eot_id|>") in tokenizer.eos_ids()
    assert tokenizer.decode([256, 0xC3, 0xA9]) == "é"


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "as written"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_checks_pass_on_every_kind_of_file(path: Path, fuse: bool, device: Device) -> None:
    """Each op against its reference, each call against a fresh build, nothing that is not finite."""
    model = load(path, device=device, fuse=fuse)
    check = Check()
    visitor = FreshBuilds(model, Stepper([check, check_finite], inputs=True))
    for runner in model.runners:
        runner.visitor = visitor
    said(Session(model, ahead=True), [3, 5, 7, 11], 2)
    assert check.compared
    assert not check.without
    assert max(check.worst.values()) < 1e-9
    assert visitor.compared >= 2


def test_logits_come_without_choosing_a_token(model: Model) -> None:
    """The dispatches that choose a token run only where its id is asked for."""
    model.run([np.array([[3]]), np.array([0])])
    for_logits = model.stats.dispatches
    model.finish(model.start([3], 0))
    assert model.stats.dispatches > for_logits
    model.run([np.array([[3]]), np.array([0])])
    assert model.stats.dispatches == for_logits


def test_an_id_that_is_on_the_device_is_not_sent_again(model: Model) -> None:
    """Only while nothing else has run; any other id is sent."""
    (chosen,) = model.finish(model.start([3], 0))
    for ids, between, sent in (([chosen], False, 0), ([3], False, 4), ([chosen], True, 4)):
        model.finish(model.start([3], 0))
        if between:
            model.run([np.array([[5]]), np.array([0])])
        started = model.start(ids, 1)
        model.finish(started)
        assert started.stats.upload_bytes == sent


def test_no_step_ahead_where_a_software_driver_has_all_processors(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    for software, threads, ahead in ((True, "2", False), (True, "0", True), (False, "2", True)):
        monkeypatch.setenv("LP_NUM_THREADS", threads)
        monkeypatch.setattr(type(model.device.adapter), "software", software)
        assert Session(model).decoder.ahead is ahead


def test_a_watched_call_gives_the_same_in_several_submissions(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells the share that is done, and what the watcher raises ends it."""
    monkeypatch.setattr(executor, "LONG_WORK", 0)
    monkeypatch.setattr(executor, "PART_NS", 1)
    inputs, shares = [np.array([PROMPT]), np.array([0])], list[float]()
    want = model.run(inputs)[0]
    assert np.array_equal(model.run(inputs, watch=shares.append)[0], want)
    assert len(shares) > 5
    assert sorted(set(shares)) == shares
    assert 0 < shares[0] < shares[-1] < 1

    def stop(share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.run(inputs, watch=stop)
    assert np.array_equal(model.run(inputs)[0], want)
    bar: list[tuple[str, int, int]] = []
    Session(model, progress=lambda *told: bar.append(told), chunk=6).prefill(PROMPT)
    assert [done for _, done, _ in bar] == sorted(done for _, done, _ in bar)
    assert len({done for _, done, _ in bar}) > 5
