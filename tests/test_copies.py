"""Copies of a small model that share the sequences of a run give the replies of one batch."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from webgpu_run import LLM
from webgpu_run.bench.runner import Bench
from webgpu_run.bench.trials import LengthLimits, Trial
from webgpu_run.errors import DeviceError, UsageError
from webgpu_run.formats import pte
from webgpu_run.gpu import native
from webgpu_run.gpu.adapters import THREADS
from webgpu_run.gpu.device import Device
from webgpu_run.llm import batch as scheduler
from webgpu_run.llm.session import Stopped
from webgpu_run.ops.choice import GREEDY
from webgpu_run.runtime import batch as batches
from webgpu_run.runtime.batch import Batch, Row, nbytes_of, open_batches, shares
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


@pytest.fixture
def llm(device: Device, one_thread: None, tmp_path: Path) -> LLM:
    return LLM(folder(tmp_path), device=device)


def test_a_twin_has_the_same_limits_and_an_instance_of_its_own(device: Device) -> None:
    first = native.instance()
    twin = device.twin()
    assert twin.limits == device.limits
    assert twin.adapter.key == device.adapter.key
    assert twin.native is not device.native
    assert native.instance() is first  # later adapters come from the first instance again


def test_a_twin_is_released(device: Device) -> None:
    """Its driver has threads of its own, which end with it."""
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        pytest.skip("threads can't be counted")
    device.twin().wait()
    before = len(list(tasks.iterdir()))
    for _ in range(8):
        device.twin().wait()
    assert len(list(tasks.iterdir())) < before + 8


def test_a_copy_gives_the_same_bits(model: Model, one_thread: None) -> None:
    one, two = (batch.model for batch in open_batches(model, 8))
    rows = [Row(5 + 7 * i, i, 0, words=GREEDY) for i in range(3)]
    (ids, logits, _), (expected, want, _) = (Batch(m, 3).run(rows, logits=True) for m in (two, one))
    assert ids == expected
    assert logits is not None
    assert want is not None
    assert logits.tobytes() == want.tobytes()


def test_copies_where_the_driver_leaves_cores_unused(model: Model, one_thread: None) -> None:
    two = open_batches(model, 9, 1)
    assert [batch.sequences for batch in two] == [6, 6]  # of the 9 sequences and one more for each
    assert two[0].device is model.device
    assert two[1].device.native is not model.device.native
    assert nbytes_of(two) > 2 * two[0].nbytes  # the copy has weights too
    assert len(open_batches(model, 7)) == 1  # a copy would have three sequences


def test_a_large_model_is_not_copied(model: Model, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "SMALL", model.program.file_size)
    assert len(open_batches(model, 8)) == 1


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


def test_replies_and_shared_beginnings(llm: LLM) -> None:
    """Two beginnings, each shared by several prompts, a prompt that is too long, and prompts without a beginning."""
    first, second = [9 * i % 500 for i in range(40)], [11 * i % 500 for i in range(1, 36)]
    prompts = [[*(first if i % 3 else second), 60 + i, *range(i)] for i in range(14)]
    prompts += [[1] * (llm.context + 1), *([3 + i, 5] for i in range(8))]
    alone = replies(llm, prompts, 1)
    assert sum(bool(error) for _, error in alone) == 1
    for parallel in (8, 9, 16, 3, 2):
        assert replies(llm, prompts, parallel) == alone
    assert len(llm.batches(2)) == 2


def test_a_beginning_is_released_when_nobody_needs_it(llm: LLM) -> None:
    """Every group of prompts has a beginning of its own; there are more of them than caches."""
    prompts = [[*(g * 7 % 500 for _ in range(33)), 60 + i] for g in range(1, 12) for i in range(3)]
    assert replies(llm, prompts, 8) == replies(llm, prompts, 1)


@pytest.fixture
def under_way(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many calls are under way, at every begin of one."""
    run, decode, lock, now, seen = Batch.run, Batch.decode, threading.Lock(), [0], list[int]()

    def counted(call: Any) -> Any:
        def counting(*args: Any, **options: Any) -> Any:
            with lock:
                now[0] += 1
                seen.append(now[0])
            try:
                return call(*args, **options)
            finally:
                with lock:
                    now[0] -= 1

        return counting

    monkeypatch.setattr(Batch, "run", counted(run))
    monkeypatch.setattr(Batch, "decode", counted(decode))
    yield seen
    assert now == [0]


def test_all_copies_compute_at_the_same_time(llm: LLM, under_way: list[int]) -> None:
    replies(llm, [[5 + i, 6] for i in range(16)], 8)
    assert max(under_way) == 2


def test_an_error_of_a_copy_is_raised_and_ends_the_run(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    main, decode = llm.model.device, Batch.decode

    def broken(self: Batch, *args: Any) -> Any:
        if self.device.native is not main.native:
            raise DeviceError("the device was lost")
        return decode(self, *args)

    prompts = [[5 + i, 6] for i in range(16)]
    replies(llm, prompts, 8)
    monkeypatch.setattr(Batch, "decode", broken)
    before = llm.batches(8)
    with pytest.raises(DeviceError, match="the device was lost"):
        replies(llm, prompts, 8)
    assert not set(before) & set(llm.batches(8))
    assert "batch" not in [thread.name for thread in threading.enumerate()]
    monkeypatch.setattr(Batch, "decode", decode)
    assert replies(llm, prompts, 8) == replies(llm, prompts, 1)  # with other batches


def test_a_run_that_was_left_does_not_disturb_the_next(llm: LLM) -> None:
    prompts = [[5 + i, 6] for i in range(24)]
    want = replies(llm, prompts, 8)
    left = llm.generate_many([[90 + i, 6] for i in range(24)], max_new_tokens=9, parallel=8, ignore_eos=True)
    next(left)  # calls are under way
    assert replies(llm, prompts, 8) == want
    with pytest.raises(UsageError, match="another run of prompts"):
        list(left)


def delayed(monkeypatch: pytest.MonkeyPatch, slow: Batch, seconds: float) -> None:
    """Let each call of this batch take longer."""
    run, decode = Batch.run, Batch.decode

    def after_a_while(call: Any) -> Any:
        return lambda self, *args: (time.sleep(seconds * (self is slow)), call(self, *args))[1]

    monkeypatch.setattr(Batch, "run", after_a_while(run))
    monkeypatch.setattr(Batch, "decode", after_a_while(decode))


def test_ctrl_c_keeps_what_is_done(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it, no call begins, and the replies of those that were under way are there."""
    delayed(monkeypatch, llm.batches(16)[1], 0.5)
    prompts = [[5 + i, 6] for i in range(40)]
    many = llm.generate_many(prompts, max_new_tokens=1, parallel=16, ignore_eos=True)
    done = [next(many)]
    llm.session.interrupted = lambda: True
    with pytest.raises(Stopped):
        done.extend(many)
    assert len(done) == 16  # eight of each copy
    assert all(completion.ids for completion in done)


def test_few_prompts_use_all_copies(llm: LLM, under_way: list[int]) -> None:
    replies(llm, [[5 + i, 6] for i in range(8)], 16)
    assert max(under_way) == 2


def test_a_call_that_hangs_is_given_up(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, held = [[5 + i, 6] for i in range(16)], threading.Event()
    want, batches = replies(llm, prompts, 8), llm.batches(8)
    run = Batch.run
    monkeypatch.setattr(scheduler, "AT_STOP", 0.2)
    monkeypatch.setattr(
        Batch, "run", lambda *args: (held.wait(20), run(*args))[1] if args[0] is batches[1] else run(*args)
    )
    many = llm.generate_many(prompts, max_new_tokens=3, parallel=8, ignore_eos=True)
    next(many)
    start = time.monotonic()
    many.close()  # type: ignore[attr-defined]
    assert replies(llm, prompts, 8) == want  # with other batches
    assert time.monotonic() - start < 10
    assert not held.is_set()
    held.set()


def test_larger_batches_replace_smaller_ones(llm: LLM) -> None:
    """Caches that are no longer used are released before larger ones are allocated."""
    replies(llm, [[5 + i, 6] for i in range(8)], 8)
    before = [weakref.ref(batch) for batch in llm.batches(8)]
    llm.batches(16)
    gc.collect()
    assert [batch() for batch in before] == [None, None]


def test_a_run_can_be_left_and_stopped(llm: LLM, under_way: list[int]) -> None:
    prompts = [[5 + i, 6] for i in range(40)]
    many = llm.generate_many(prompts, max_new_tokens=20, parallel=8, ignore_eos=True)
    next(many)
    many.close()  # type: ignore[attr-defined]
    calls = len(under_way)
    assert calls < 40 * 20 / 8
    llm.session.interrupted = lambda: True
    with pytest.raises(Stopped):
        list(llm.generate_many(prompts, parallel=8))
    assert len(under_way) == calls


@pytest.mark.parametrize(
    ("count", "sequences", "extra", "want"),
    [
        (16, (8, 8), 0, [8, 8]),
        (9, (6, 6), 1, [5, 4]),
        (7, (8, 8), 0, [7]),  # a second copy would have three
        (6, (4, 4), 0, [3, 3]),  # but the first has no room for six
        (2, (16,), 0, [2]),
        (0, (8, 8), 0, [0]),
    ],
)
def test_shares(count: int, sequences: Sequence[int], extra: int, want: list[int]) -> None:
    some: Any = [SimpleNamespace(sequences=n) for n in sequences]
    assert shares(count, some, extra) == want


def test_the_benchmark_waits_for_all_copies(model: Model, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(model, LengthLimits(8, 128, 512, exact=False), sequences=8)
    delayed(monkeypatch, bench._batches[1], 0.3)
    assert bench._decode_batch(Trial(True, 4, batch=8)).wall > 3e8


def test_the_benchmark_with_other_numbers_than_that_of_the_copies(model: Model, one_thread: None) -> None:
    bench = Bench(model, LengthLimits(8, 128, 512, exact=False), sequences=8)
    for count in (8, 7, 6, 5, 3):
        sample = bench._decode_batch(Trial(True, 4, batch=count))
        assert len(sample.shares) == 4
        assert sample.wall >= sample.wait


def test_memory_of_copies(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, file = llm.model.cache_nbytes, llm.model.program.file_size
    for free, count in ((16 * cache + file, 16), (16 * cache + file - 1, 8), (4 * cache, 4)):
        monkeypatch.setattr(scheduler, "available", lambda free=free: 2 * free)
        assert scheduler._fitting(llm, 0) == count
