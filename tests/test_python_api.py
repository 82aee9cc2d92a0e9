"""`webgpu_run.LLM` from Python: replies, chat, scores, traces, interrupts, the page about it and the notebook."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import webgpu_run
from webgpu_run import LLM
from webgpu_run.debug.timings import as_dict
from webgpu_run.gpu.device import Device
from webgpu_run.llm.options import Options, ReplyOptions
from webgpu_run.shapes import Array

from helpers.command import webgpu_run as command
from helpers.language import FIXTURES, TEMPLATE, byte_tokenizer, environment, folder

ROOT = FIXTURES.parents[1]


def log_softmax(rows: Array) -> Array:
    rows = rows.astype(np.float64)
    best = rows.max(axis=-1, keepdims=True)
    out: Array = rows - best - np.log(np.exp(rows - best).sum(axis=-1, keepdims=True))
    return out


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory, device: Device) -> LLM:
    return LLM(folder(tmp_path_factory.mktemp("tiny")), device=device)


def test_a_reply_is_that_of_the_command_and_of_eager(llm: LLM) -> None:
    data = np.load(FIXTURES / "tiny_dyn.npz")
    prompt, eager = data["tokens_0"].reshape(-1).tolist(), [int(data[f"logits_{i}"].argmax()) for i in range(7)]
    reply = llm.generate(prompt, max_new_tokens=7, ignore_eos=True)
    assert "not started" in repr(reply)
    pieces = list(reply)
    assert (reply.ids, reply.reason) == (eager, "length")
    assert "".join(pieces) == reply.text == str(reply) == byte_tokenizer().decode(eager)
    assert list(reply) == pieces
    assert (reply.stats.prefill_tokens, reply.stats.decode_tokens) == (len(prompt), 6)
    assert reply.stats.ttft_ms
    drawn = {"max_new_tokens": 9, "temperature": 1.2, "top_k": 100, "ignore_eos": True}
    mine = llm.generate("so it is", seed=5, **drawn)  # type: ignore[arg-type]
    args = ("--prompt", "so it is", "-n", "9", "--temp", "1.2", "--top-k", "100", "--ignore-eos", "--seed", "5", "-q")
    assert command(llm.model.program.path, *args).out == mine.text + "\n" * (not mine.text.endswith("\n"))
    other = llm.generate("so it is", **drawn)  # type: ignore[arg-type]
    assert other.ids == llm.generate("so it is", seed=other.seed, **drawn).ids  # type: ignore[arg-type]


def test_why_a_reply_ends(llm: LLM) -> None:
    whole = llm.generate("in the", max_new_tokens=16, ignore_eos=True).text
    stop = whole[4:6]
    reply = llm.generate("in the", max_new_tokens=16, ignore_eos=True, stop=[stop, "never"])
    assert (reply.reason, reply.text) == ("stop", whole[: whole.find(stop)])
    assert llm.generate("in the", max_new_tokens=-1, ignore_eos=True).reason == "context"
    first = llm.generate("in the", max_new_tokens=8)
    next(iter(first))
    llm.generate("he said", max_new_tokens=2)
    assert first.reason == "interrupt"
    for wrong in ({"temperature": -1}, {"top_p": 0}, {"min_p": 2}, {"top_k": -1}, {"max_new_tokens": 0}, {"seed": -3}):
        with pytest.raises(webgpu_run.UsageError, match=next(iter(wrong))):
            llm.generate("x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(webgpu_run.ShapeError):
        llm.generate([1] * 129)


def test_chat_keeps_the_cache_where_messages_agree(llm: LLM) -> None:
    tokenizer = byte_tokenizer()
    messages = [{"role": "user", "content": "who is it"}]
    first = llm.chat(messages, max_new_tokens=5, ignore_eos=True)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "and you"}]
    second = llm.chat(messages, max_new_tokens=5, ignore_eos=True)
    added = tokenizer.encode("<|im_end|>\n<|im_start|>user\nand you<|im_end|>\n<|im_start|>assistant\n").ids
    assert second.prompt_ids == first.ids[-1:] + added
    assert second.ids
    messages[2]["content"] = "and yet"
    third = llm.chat(messages, max_new_tokens=5, ignore_eos=True)
    assert len(third.prompt_ids) < len(added)
    want, whole = third.ids, llm.session.ids[:-4]
    assert llm.generate(whole, max_new_tokens=5, ignore_eos=True).ids == want


@pytest.mark.parametrize("name", ["tiny_full", "tiny_dyn", "tiny_static", "tiny_nosdpa"])
def test_scores(name: str, device: Device) -> None:
    """All rows at once or one by one: the probabilities of the eager model, or else those after each prefix."""
    llm = LLM(FIXTURES / f"{name}.pte", device=device)
    data = np.load(FIXTURES / f"{name}.npz")
    ids = data["tokens_0"].reshape(-1).tolist() if name == "tiny_full" else [3, 5, 7, 11, 200, 20, 9]
    if name == "tiny_full":
        rows = data["logits_0"].reshape(len(ids), -1)
    else:
        rows = np.stack([llm.session.step([i]) for i in ids])
        llm.reset()
    want = [0.0, *(log_softmax(row)[i] for row, i in zip(rows, ids[1:], strict=False))]
    got = llm.score(ids)
    assert len(got) == len(ids)
    assert got[0] == 0.0
    np.testing.assert_allclose(got, want, atol=1e-4)
    assert len(llm.session.calls) == (1 if name == "tiny_full" else len(ids) - 1)


def test_trace_and_timings_are_those_of_the_command(llm: LLM) -> None:
    reply = llm.generate("so it is", max_new_tokens=4, ignore_eos=True)
    trace, position = llm.trace(), llm.session.position
    args = (llm.model.program.path, "--prompt", "so it is", "-n", "4", "--ignore-eos")
    lines = [json.loads(line) for line in command(*args, "--trace-resize=json").err.splitlines()[:-1]]
    assert len(trace) == len(lines) == 4
    got = json.loads(json.dumps(trace.to_dicts()))
    for key in ("phase", "tokens", "position", "dispatches", "call"):
        assert [call[key] for call in got] == [line[key] for line in lines]
    assert got[1]["nodes"] == lines[1]["nodes"]
    assert (trace[0].phase, trace[-1].planned, len(trace[:2])) == ("prefill", 0, 2)
    timings = llm.timings("dispatch")
    assert timings.phases["decode"].calls == 3
    told = json.loads(command(*args, "--timings", "dispatch", "--stats", "json").err.splitlines()[-1])["timings"]
    mine = as_dict(timings)
    for phase in ("prefill", "decode"):
        assert [row["label"] for row in mine[phase]["rows"]] == [row["label"] for row in told[phase]["rows"]]
    assert llm.session.position == position
    assert llm.generate("so it is", max_new_tokens=4, ignore_eos=True).ids == reply.ids
    for shown, word in ((trace, "input 0"), (timings, "kernel · route")):
        assert word in repr(shown)
        assert "<pre" in shown._repr_html_()
        assert word in shown._repr_html_()
    with pytest.raises(webgpu_run.UsageError, match="by 'node'"):
        llm.timings("node")


def test_an_interrupt_leaves_a_usable_model(llm: LLM) -> None:
    """As in a notebook: SIGINT raises KeyboardInterrupt anywhere, also while a tokenizer's answer is awaited."""
    want = llm.generate("so it is", max_new_tokens=40, ignore_eos=True).ids
    messages = [{"role": "user", "content": "who"}]
    answer = llm.chat(messages, max_new_tokens=3).ids
    count = 0
    for k in range(20):
        timer = threading.Timer(0.002 * k, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                llm.generate("so it is", max_new_tokens=40, ignore_eos=True).finish()
                llm.chat(messages, max_new_tokens=3).finish()
        except KeyboardInterrupt as interrupt:
            count += 1
            frames = traceback.extract_tb(interrupt.__traceback__)
            assert not any("gpu" in Path(frame.filename).parts for frame in frames)
        timer.join()
        assert llm.chat(messages, max_new_tokens=3).ids == answer
        assert llm.generate("so it is", max_new_tokens=40, ignore_eos=True).ids == want
    assert count == 20
    assert llm.session.progress is not None  # a long prefill is submitted in parts: no next call waits for all of it


def test_what_is_public(llm: LLM) -> None:
    assert set(webgpu_run.__all__) == set(dir(webgpu_run))
    assert {"LLM", "Reply", "load", "Model", "RunError"} <= set(dir(webgpu_run))
    assert re.fullmatch(r"<LLM model\.pte on .+ \(\w+\), context: \d+ of 128 positions used>", repr(llm))
    code = "import sys, webgpu_run; print([m for m in ('numpy', 'wgpu', 'rich', 'typing') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-S", "-c", code], env=environment(), capture_output=True, text=True)
    assert told.stdout == "[]\n", told.stderr
    helped = subprocess.run([sys.executable, "-m", "pydoc", "webgpu_run"], env=environment(), capture_output=True)
    for word in (b"class LLM", b"generate(self, prompt", b"score(self, text", b"class Reply", b"class UsageError"):
        assert word in helped.stdout
    assert (ROOT / "webgpu_run" / "py.typed").exists()
    for cls in (LLM, webgpu_run.Reply):
        assert [name for name, value in vars(cls).items() if name[0] != "_" and not value.__doc__] == []


def test_options_are_typed_and_shown_by_name(llm: LLM) -> None:
    assert get_type_hints(ReplyOptions) == get_type_hints(Options)
    defaults = {f.name: f.default for f in fields(Options)}
    for method in (llm.generate, llm.chat, llm.generate_many):
        shown = inspect.signature(method).parameters
        assert {name: shown[name].default for name in defaults} == defaults
        assert "options" not in shown
    for call in (llm.generate, llm.chat):
        with pytest.raises(TypeError, match="temprature"):
            call([], temprature=1)  # type: ignore[operator]


def test_a_model_without_tokenizer_takes_ids(device: Device) -> None:
    llm = LLM(FIXTURES / "tiny_dyn.pte", device=device)
    reply = llm.generate([3, 5], max_new_tokens=3)
    assert reply.text == " ".join(map(str, reply.ids))
    for call in (lambda: llm.generate("hi"), lambda: llm.chat([{"role": "user", "content": "hi"}])):
        with pytest.raises(webgpu_run.FormatError, match="no tokenizer"):
            call()


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)
    assert len(blocks) >= 8
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    out = capsys.readouterr().out
    assert "tokens were new" in out
    assert "no such file" in out
    assert len(out) > 200


def test_the_notebook_runs(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    shutil.copy(ROOT / "examples" / "notebook.ipynb", tmp_path / "n.ipynb")
    notebook = nbformat.read(tmp_path / "n.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(ROOT)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = json.dumps(outputs)
    streamed = "".join(output.get("text", "") for output in outputs)
    assert len(streamed.split()) > 20
    for word in ("<LLM model.pte on", "ReplyStats(", "<pre", "GFLOP/s", "layers 0"):
        assert word in shown
    assert sum("text/html" in output.get("data", {}) for output in outputs) == 2


def test_an_interrupted_cell_leaves_a_usable_model() -> None:
    """The stop button of a notebook, while one reply after the other is generated."""
    manager = pytest.importorskip("jupyter_client.manager")
    kernel, client = manager.start_new_kernel(cwd=str(ROOT))

    def run(cell: str, *, until: str = "") -> str:
        """What the cell prints and raises. It is interrupted when it has printed `until`."""
        shown = ""

        def listen(message: Any) -> None:
            nonlocal shown, until
            content = message["content"]
            shown += content.get("text", "") + content.get("ename", "")
            if until and until in shown:
                until = ""
                threading.Timer(0.3, kernel.interrupt_kernel).start()

        client.execute_interactive(cell, output_hook=listen, timeout=180)
        return shown

    try:
        tale = "llm.generate('Once upon a time', max_new_tokens=40).text"
        first = run(f"import webgpu_run\nllm = webgpu_run.LLM()\nprint({tale})")
        assert len(first.split()) > 20
        assert run(f"print('starts')\nwhile True: {tale}", until="starts").endswith("KeyboardInterrupt")
        assert run(f"print({tale})") == first
    finally:
        kernel.shutdown_kernel(now=True)
