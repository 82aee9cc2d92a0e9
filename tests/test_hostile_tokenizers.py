"""Tokenizer files that make their library panic, run without end or take all memory: one line, in bounded time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from webgpu_run.llm.tokenizer import TextStream, find
from webgpu_run.llm.tokenizer_process import TokenizerProcess

from helpers.command import execute, webgpu_run
from helpers.language import byte_tokenizer, folder, start


def expanding(count: int) -> dict[str, Any]:
    """Normalizers that each replace an `a` by a thousand."""
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    return {"type": "Sequence", "normalizers": [replace] * count}


def damaged(path: Path, **fields: Any) -> Path:
    """A model with a tokenizer whose fields are these."""
    model = folder(path)
    content = json.loads((path / "tokenizer.json").read_text())
    (path / "tokenizer.json").write_text(json.dumps(content | fields))
    return model


@pytest.mark.parametrize(
    "fields",
    [
        {"normalizer": expanding(3)},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$("}, "behavior": "Isolated", "invert": False}},
        {"model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}},
        {"model": {"type": "Unigram", "vocab": [], "unk_id": 7}},
        {"added_tokens": [{"id": 4294967295, "content": "", "special": True}]},
        {"version": "9" * 10_000},
    ],
    ids=["expand", "charsmap", "charsmap-size", "regex", "id", "unigram", "added", "version"],
)
def test_hostile_tokenizer_files(fields: dict[str, Any], tmp_path: Path) -> None:
    result = webgpu_run(damaged(tmp_path, **fields), "--prompt", "banana " * 3, "-n", "1")
    lines = [line for line in result.err.splitlines() if not line.startswith(("warning: ", "hint: "))]
    assert result.code in (0, 2, 3, 5), result.err
    assert "unexpected" not in result.err
    assert len(lines) == 1, result.err
    assert len(lines[0]) < 2100
    assert result.seconds < 60
    assert result.peak < 2200 << 20  # the limit of the process, where there is none of the file


def test_decoding_a_token_is_fast(tmp_path: Path) -> None:
    """Each token of a stream takes two round trips to the process."""
    tokenizer = find(folder(tmp_path))
    ids = tokenizer.encode_plain("the quick brown fox jumps over the lazy dog, " * 40)
    stream, best, pieces = TextStream(tokenizer.decode), 1.0, []
    for token in ids:
        start_s = time.perf_counter()
        pieces.append(stream.push(token))
        best = min(best, time.perf_counter() - start_s)
    print(f"\na token of a stream: {best * 1e6:.0f} µs at best", end="")
    assert "".join(pieces) + stream.finish() == "the quick brown fox jumps over the lazy dog, " * 40
    assert best < 0.001


def test_the_process_equals_the_library(tmp_path: Path) -> None:
    tokenizer, library = find(folder(tmp_path)), byte_tokenizer()
    for text in ("hello", "héllo 🙂", "<|im_start|>user\n", "", "\0\n\t", "\ufffd"):
        assert tokenizer.encode_plain(text) == library.encode(text, add_special_tokens=False).ids
        ids = library.encode(text).ids
        assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)
    assert tokenizer.id_of("<|im_end|>") == library.token_to_id("<|im_end|>")
    assert tokenizer.id_of("no such token") is None
    assert tokenizer.size == library.get_vocab_size()


def test_the_bundled_tokenizer_needs_no_process() -> None:
    script = (
        "import subprocess\nsubprocess.Popen = None\nfrom webgpu_run.assets import bundled_model\n"
        "from webgpu_run.llm.tokenizer import find\nt = find(bundled_model())\nprint(t.decode(t.encode_plain('hello')))"
    )
    assert execute(sys.executable, "-c", script).out.strip() == "hello"


def test_the_process_ends_with_the_command(tmp_path: Path) -> None:
    model = folder(tmp_path)
    process = start(model, "--chat", stdin=subprocess.PIPE)
    deadline = time.monotonic() + 60
    workers: list[str] = []
    while not workers and time.monotonic() < deadline:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [c for c in children if b"tokenizer_worker" in Path(f"/proc/{c}/cmdline").read_bytes()]
        time.sleep(0.02)
    assert len(workers) == 1
    process.kill()
    process.communicate()
    while Path(f"/proc/{workers[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{workers[0]}").exists()


def test_a_huge_file_beside_a_tokenizer(tmp_path: Path) -> None:
    model = damaged(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"a": "' + "b" * (9 << 20) + '"}')
    result = webgpu_run(model, "--prompt", "a", "-n", "1")
    assert result.code == 3
    assert "at most" in result.err
    assert "tokenizer_config.json" in result.err


def test_a_process_ends_with_its_tokenizer(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    tokenizer = TokenizerProcess(tmp_path / "tokenizer.json", "tokenizers", {})
    process = tokenizer._process
    assert tokenizer.encode_plain("a")
    del tokenizer
    assert process.returncode is not None
    assert not recwarn.list
