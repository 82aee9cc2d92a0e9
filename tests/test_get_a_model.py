"""Without a .pte at hand: weights are refused with the next step, a folder is a model, the export script refuses."""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
from pathlib import Path

import pytest

from helpers.command import HERE, Result, execute, webgpu_run
from helpers.language import FIXTURES, folder

EXPORT = HERE.parent / "examples" / "export" / "export.py"
SAFETENSORS = struct.pack("<Q", 64) + b'{"a":{"dtype":"F32"}}'.ljust(64) + bytes(99)


def error_and_hint(result: Result, code: int) -> tuple[str, str]:
    """The error line and its hint line, which are all that a refusal prints."""
    assert (result.code, result.out) == (code, ""), result.err
    error, hint = result.err.splitlines()
    assert hint.startswith("hint: ")
    return error, hint


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("tale.gguf", b"GGUF\3\0\0\0" + bytes(100), "export.py {path} OUT"),
        ("model.safetensors", SAFETENSORS, "export.py FOLDER OUT"),
        ("consolidated.pth", b"PK\3\4" + bytes(100), "export.py FOLDER OUT"),
        ("pytorch_model.bin", b"\x80\x02" + bytes(100), "export.py FOLDER OUT"),
    ],
)
def test_weights_are_refused_with_the_next_step(tmp_path: Path, name: str, content: bytes, command: str) -> None:
    (tmp_path / name).write_bytes(content)
    error, hint = error_and_hint(webgpu_run(tmp_path / name, "--prompt", "hi"), 3)
    assert "not a .pte file: it looks like a" in error
    assert f"python examples/export/{command.format(path=tmp_path / name)}" in hint
    assert EXPORT.is_file()


def test_other_files_have_no_such_hint(tmp_path: Path) -> None:
    (tmp_path / "page.pte").write_bytes(b"<!DOCTYPE html><html><title>404")
    result = webgpu_run(tmp_path / "page.pte", "--inspect")
    assert (result.code, len(result.err.splitlines())) == (3, 1)


def test_a_folder_with_one_pte_is_a_model(tmp_path: Path) -> None:
    model = folder(tmp_path / "tiny")
    by_file, by_folder = (webgpu_run(path, "--prompt", "hello", "-n", "8", "-q") for path in (model, model.parent))
    assert (by_folder.code, by_folder.out) == (0, by_file.out)
    assert len(by_folder.out) > 1
    seen = (webgpu_run(path, "--inspect").out for path in (model.parent, model))
    by_folder_again, by_file_again = (re.sub(r"of [\d.]+ [GMk]?B", "", out) for out in seen)  # free memory changes
    assert by_folder_again == by_file_again


def test_webgpu_bench_takes_a_folder(tmp_path: Path) -> None:
    model = folder(tmp_path / "tiny")
    args = ("-p", "1", "-n", "0", "-w", "0", "-r", "1", "-o", "json")
    result = execute(sys.executable, "-m", "webgpu_run.cli.bench", model.parent, *args)
    assert result.code == 0, result.err


def test_a_folder_with_several_lists_them(tmp_path: Path) -> None:
    for name in ("b.pte", "a.pte"):
        shutil.copy(FIXTURES / "tiny_dyn.pte", tmp_path / name)
    error, hint = error_and_hint(webgpu_run(tmp_path, "--inspect"), 3)
    assert "is a directory with 2 models: a.pte, b.pte" in error
    assert hint == "hint: name one"


def test_a_hugging_face_folder_is_refused_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    error, hint = error_and_hint(webgpu_run(tmp_path, "--inspect"), 3)
    assert "is a directory without a .pte file" in error
    assert f"export.py {tmp_path} OUT" in hint


def export(*args: str | Path) -> Result:
    return execute(sys.executable, EXPORT, *args)


def test_export_refuses_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(SAFETENSORS)
    for source in ("none", "model.safetensors"):
        error, hint = error_and_hint(export(tmp_path / source, tmp_path / "out"), 1)
        assert error.startswith("export: error: neither smollm2")
        assert "examples/export/README.md" in hint
        assert not (tmp_path / "out").exists()


def test_export_keeps_a_model_that_is_there(tmp_path: Path) -> None:
    old = tmp_path / "out" / "out.pte"
    old.parent.mkdir()
    old.write_bytes(b"old")
    _, hint = error_and_hint(export("smollm2", old.parent), 1)
    assert "--force" in hint
    assert old.read_bytes() == b"old"


def test_export_refuses_a_model_that_is_too_large_for_memory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"dtype": "bfloat16"}))
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no room on the disk
    result = export(tmp_path, tmp_path / "out", "--python", sys.executable)
    assert result.code == 1
    assert "GB of memory" in result.err or "GB of disk" in result.err
