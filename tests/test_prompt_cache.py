"""KV caches in files, and beginnings that prompts share: the same bits, and nothing from a file that does not fit."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from webgpu_run import LLM, FormatError, UnsupportedError, UsageError
from webgpu_run.gpu.device import Device
from webgpu_run.llm.many import Job, share
from webgpu_run.shapes import Array

from helpers.command import webgpu_run
from helpers.language import FIXTURES, folder, start

IDS = np.random.default_rng(4).integers(0, 512, 100).tolist()
ENDING = ("-n", "5", "--ignore-eos")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("tiny"))


def logits(llm: LLM) -> Array:
    """Of each of the last tokens, after the first 64: one call with several tokens, and single ones."""
    return np.stack([llm.session.step(IDS[64:90]), *(llm.session.step([i]) for i in IDS[90:])])


@pytest.mark.parametrize("kv", ["f32", "f16"])
@pytest.mark.parametrize("fuse", [True, False])
def test_logits_after_loading_are_the_same_bits(
    model: Path, device: Device, tmp_path: Path, kv: str, fuse: bool
) -> None:
    if kv == "f16" and not fuse:
        with pytest.raises(UnsupportedError):
            LLM(model, device=device, kv=kv, fuse=fuse)
        return
    llm = LLM(model, device=device, kv=kv, fuse=fuse)
    llm.session.prefill(IDS[:64])
    llm.save(tmp_path / "kv", extra={"a": [1]})
    want = logits(llm)
    other = LLM(model, device=device, kv=kv, fuse=fuse)
    other.session.prefill(IDS[30:60])
    assert other.load(tmp_path / "kv") == {"a": [1]}
    assert other.session.ids == IDS[:64]
    assert np.array_equal(logits(other), want)
    llm.save(tmp_path / "part", tokens=40)
    other.load(tmp_path / "part")
    assert other.session.ids == IDS[:40]
    other.session.step(IDS[40:64])
    assert np.allclose(logits(other), want, atol=1e-3)
    with pytest.raises(UsageError, match="200"):
        llm.save(tmp_path / "kv", tokens=200)


def test_a_file_has_only_the_positions_that_are_saved(device: Device, tmp_path: Path) -> None:
    llm = LLM(device=device)
    ids = np.random.default_rng(5).integers(3, 500, 300).tolist()
    llm.session.prefill(ids)
    llm.save(tmp_path / "all")
    llm.save(tmp_path / "part", tokens=128)
    if llm.model.device.limits.profile.image_cache:  # a layer of a texture has 128 positions
        assert (tmp_path / "part").stat().st_size < 0.4 * (tmp_path / "all").stat().st_size
    want = LLM(device=device).session.prefill(ids[:140])
    other = LLM(device=device, hash_ahead=True)
    other.load(tmp_path / "part")
    assert np.allclose(other.session.prefill(ids[128:140]), want, atol=1e-3)


def test_a_file_that_does_not_fit_is_refused(model: Path, device: Device, tmp_path: Path) -> None:
    llm = LLM(model, device=device)
    llm.session.prefill(IDS[:33])
    llm.save(tmp_path / "kv")
    whole, dice = (tmp_path / "kv").read_bytes(), random.Random(2)
    bad = tmp_path / "bad"
    damaged = [whole[:cut] for cut in (0, 1, 15, 24, 60, len(whole) // 2, len(whole) - 1)] + [whole + b"x"]
    places = (*range(60), *(dice.randrange(len(whole)) for _ in range(60)), len(whole) - 1)
    damaged += [whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1 :] for at in places]
    for data in damaged:
        bad.write_bytes(data)
        with pytest.raises(FormatError, match=r"damaged|not a prompt cache|larger"):
            llm.load(bad)
        assert llm.session.ids == IDS[:33]
    with pytest.raises(FormatError, match="KV type"):
        LLM(model, device=device, kv="f16").load(tmp_path / "kv")
    changed = shutil.copytree(model.parent, tmp_path / "changed") / "model.pte"
    changed.write_bytes(changed.read_bytes() + b"\0")
    with pytest.raises(FormatError, match="another model"):
        LLM(changed, device=device).load(tmp_path / "kv")
    with pytest.raises(FormatError, match="layout"):
        LLM(model, device=device, fuse=False).load(tmp_path / "kv")
    with pytest.raises(FormatError, match="no such file"):
        llm.load(tmp_path / "none")


def told(result_err: str) -> dict[str, dict[str, int]]:
    stats: dict[str, dict[str, int]] = json.loads(result_err.splitlines()[-1])
    return stats


def test_the_command(model: Path, tmp_path: Path) -> None:
    file, numbers = tmp_path / "kv", ",".join(map(str, IDS))
    args = (FIXTURES / "tiny_dyn.pte", *ENDING, "--stats", "json", "--prompt-cache", file, "--prompt-ids")
    first, second = (webgpu_run(*args, numbers) for _ in range(2))
    assert first.out == second.out
    assert [told(r.err)["prefill"]["tokens"] for r in (first, second)] == [100, 4]
    other = webgpu_run(*args, ",".join(map(str, [*IDS[:70], 9])))
    assert (other.code, told(other.err)["prefill"]["tokens"]) == (0, 7)
    longer = [webgpu_run(*args, ",".join(map(str, [*IDS, *IDS[:20]]))) for _ in range(2)]
    assert [told(r.err)["prefill"]["tokens"] for r in longer] == [24, 24]
    file.write_bytes(file.read_bytes()[:-1])
    again = webgpu_run(*args, numbers)
    assert again.err.startswith("the prompt cache is ignored: it is damaged")
    assert (again.out, len(again.err.splitlines())) == (first.out, 2)
    assert told(webgpu_run(*args, numbers).err)["prefill"]["tokens"] == 4


def test_a_chat_is_saved_and_goes_on(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk"

    def talk(*lines: str) -> tuple[str, str]:
        process = start(model, "--chat", "--turns", *ENDING, stdin=-1)
        out, err = process.communicate("".join(f"{line}\n" for line in lines).encode(), timeout=120)
        assert process.returncode == 0, err
        return out.decode(), err.decode()

    whole, _ = talk("who is it", f"/save {file}", "so it is")
    out, err = talk(f"/load {file}", "so it is")
    assert whole.endswith(out)
    assert 0 < len(out) < len(whole)
    file.write_bytes(file.read_bytes()[:-1])
    _, err = talk(f"/load {file}", "/save", "/load /none", "so it is")
    assert [line for line in err.splitlines() if "error" in line] == [
        f"webgpu-run: error: it is damaged ({file})",
        "webgpu-run: error: /save needs the name of a file",
        "webgpu-run: error: no such file or directory (/none)",
    ]


def test_beginnings_that_rows_share() -> None:
    def jobs(*rows: list[int]) -> list[Job]:
        return [Job(i, i, row, {}) for i, row in enumerate(rows)]

    a, b = IDS[:40], IDS[40:90]
    rows = jobs([*a, 1, 2], b, [*a, 1, 3], [7], [*a, 1], [7], [*b, 5])
    assert [(job.index, job.prefix) for job in share(rows)] == [
        (0, 40),
        (2, 40),
        (4, 40),
        (1, 49),
        (6, 49),
        (3, 0),
        (5, 0),
    ]
    assert [(job.index, job.prefix) for job in share(jobs(a, IDS[:32]))] == [(0, 0), (1, 0)]


def test_a_shared_beginning_is_prefilled_once(model: Path, device: Device) -> None:
    llm = LLM(model, device=device)
    rows = [[*IDS[:64], *IDS[70 + i : 76 + i]] for i in range(6)]
    tokens: list[int] = []
    llm.session.observers.append(lambda call: tokens.append(call.tokens) if call.phase == "prefill" else None)
    done = list(
        llm.generate_many([*rows, [3, 4]], max_new_tokens=4, temperature=1, seed=3, ignore_eos=True, parallel=1)
    )
    assert tokens == [64, *[6] * 6, 2]
    llm.session.observers.clear()
    for i, (completion, row) in enumerate(zip(done, rows, strict=False)):
        assert (completion.id, completion.prompt_tokens) == (i, 70)
        llm.reset()
        apart = llm.generate(row, max_new_tokens=4, temperature=1, seed=3 + i, ignore_eos=True, prefix=64)
        assert apart.ids == list(completion.ids)
    with pytest.raises(UsageError, match="prefix"):
        llm.generate([1, 2], prefix=2)
