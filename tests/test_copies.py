"""Copies of a model that share the sequences of a run give the replies of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from webgpu_run import LLM
from webgpu_run.errors import DeviceError
from webgpu_run.formats import pte
from webgpu_run.gpu import native
from webgpu_run.gpu.adapters import THREADS
from webgpu_run.gpu.device import Device
from webgpu_run.llm.batch import shares
from webgpu_run.ops.choice import GREEDY
from webgpu_run.runtime import batch as batches
from webgpu_run.runtime.batch import Batch, Row, nbytes_of, open_batches
from webgpu_run.runtime.model import Model

from helpers.language import FIXTURES, folder


@pytest.fixture(scope="module")
def model(device: Device) -> Model:
    return Model(pte.load(FIXTURES / "tiny_dyn.pte"), device)


@pytest.fixture
def one_thread(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver look as if it computed in one thread, on a machine with two cores."""
    if "llvmpipe" not in device.name:
        pytest.skip("the driver is not Mesa's")
    monkeypatch.setenv(THREADS, "0")
    monkeypatch.setattr(batches, "_cores", lambda: 2)


def test_a_twin_has_the_same_limits_and_an_instance_of_its_own(device: Device) -> None:
    first = native.instance()
    twin = device.twin()
    assert twin.limits == device.limits
    assert twin.adapter.key == device.adapter.key
    assert native.instance() is first  # later adapters come from the first instance again
    assert native._instances[-1] not in (None, first)


def test_a_copy_gives_the_same_bits(model: Model, device: Device) -> None:
    copy = model.copy_to(device.twin())
    rows = [Row(5 + 7 * i, i, 0, words=GREEDY) for i in range(3)]
    (ids, logits, _), (expected, want, _) = (Batch(m, 3).run(rows, logits=True) for m in (copy, model))
    assert ids == expected
    assert logits is not None
    assert want is not None
    assert logits.tobytes() == want.tobytes()


def test_copies_where_the_driver_leaves_cores_unused(model: Model, one_thread: None) -> None:
    two = open_batches(model, 5, 1)
    assert [batch.sequences for batch in two] == [4, 4]  # of the 5 sequences and one more for each
    assert two[0].device is model.device
    assert two[1].device.native is not model.device.native
    assert nbytes_of(two) > 2 * two[0].nbytes  # the copy has weights too
    assert len(open_batches(model, 3)) == 1  # in a copy with one sequence half of the rows would be padding


def test_one_batch_where_the_driver_uses_all_cores(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_cores", lambda: 8)
    monkeypatch.delenv(THREADS, raising=False)
    (one,) = open_batches(model, 8, 1)
    assert one.sequences == 9
    assert nbytes_of([one]) == one.nbytes


def test_one_batch_where_the_driver_has_no_second_instance(
    model: Model, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Device) -> Device:
        raise DeviceError("no")

    monkeypatch.setattr(Device, "twin", refuse)
    assert [batch.sequences for batch in open_batches(model, 8)] == [8]


def replies(llm: LLM, prompts: Sequence[Sequence[int]], parallel: int) -> list[tuple[tuple[int, ...], str]]:
    done = llm.generate_many(list(map(list, prompts)), max_new_tokens=9, temperature=0.8, seed=3, parallel=parallel)
    return [(completion.ids, completion.error) for completion in done]


def test_replies_and_shared_beginnings(device: Device, one_thread: None, tmp_path: Path) -> None:
    """Two beginnings, each shared by several prompts, a prompt that is too long, and prompts without a beginning."""
    llm = LLM(folder(tmp_path), device=device)
    first, second = [9 * i % 500 for i in range(40)], [11 * i % 500 for i in range(1, 36)]
    prompts = [[*(first if i % 3 else second), 60 + i, *range(i)] for i in range(14)]
    prompts += [[1] * (llm.context + 1), *([3 + i, 5] for i in range(4))]
    alone = replies(llm, prompts, 1)
    assert sum(bool(error) for _, error in alone) == 1
    for parallel in (4, 5, 8):
        assert replies(llm, prompts, parallel) == alone
    assert len(llm.batches(2)) == 2


def test_the_devices_of_all_copies_compute_at_the_same_time(
    device: Device, one_thread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, under_way, most = LLM(folder(tmp_path), device=device), set[int](), 0
    start, finish = Batch.start, Batch.finish

    def started(self: Batch, *args: object, **options: object) -> object:
        nonlocal most
        under_way.add(id(self))
        most = max(most, len(under_way))
        return start(self, *args, **options)  # type: ignore[arg-type]

    def finished(self: Batch, call: object) -> object:
        under_way.remove(id(self))
        return finish(self, call)  # type: ignore[arg-type]

    monkeypatch.setattr(Batch, "start", started)
    monkeypatch.setattr(Batch, "finish", finished)
    replies(llm, [[5 + i, 6] for i in range(8)], 4)
    assert most == 2
    assert not under_way


@pytest.mark.parametrize(("count", "parts", "want"), [(16, 2, [8, 8]), (5, 2, [3, 2]), (2, 4, [1, 1, 0, 0])])
def test_shares(count: int, parts: int, want: list[int]) -> None:
    assert shares(count, parts) == want
