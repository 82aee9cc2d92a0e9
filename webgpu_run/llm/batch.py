"""Replies to many prompts at the same time: sequences share each call of the model, and come and go between calls.

A call has one row for each sequence that is being decoded, and as many tokens of waiting prompts as still fit. When a
reply ends, the next prompt takes its place.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from ..errors import RunError, ShapeError, UnsupportedError
from ..gpu.callstats import CallStats
from ..graph.host_memory import available
from ..ops.choice import GREEDY
from ..runtime.batch import Batch, Row
from ..shapes import Array
from .language_model import LLM
from .many import LEAST_SHARED, Completion, Job
from .options import Options
from .session import Stopped
from .tokenizer import StopStrings, TextStream

MOST = 16  # sequences at a time, if their number is not given
UNKNOWN_MEMORY = 1 << 30  # bytes for their caches, where the adapter does not tell how much memory it has
BLOCK = 8  # a shared beginning is a multiple of this long
AT_STOP = 10.0  # seconds to wait for the call that a batch is in when its run is stopped


class _Beginning:
    """The first tokens of several prompts, which have a cache of their own. `run` of them have been run."""

    def __init__(self, ids: Sequence[int], slot: int) -> None:
        self.ids, self.slot, self.run = ids, slot, 0


class _Sequence:
    """One prompt and its reply."""

    def __init__(self, llm: LLM, job: Job) -> None:
        options = Options(**job.options)
        self.eos = frozenset[int]() if options.ignore_eos else llm.eos_ids()
        self.sampler, self.limit, self.stops = options.sampler(), options.limit(), StopStrings(options.stops())
        self.job, self.prompt = job, list(job.ids)
        self.stream = TextStream(llm.tokenizer.decode) if llm.has_tokenizer else None
        self.slot = -1
        self.beginning: _Beginning | None = None
        self.run = 0  # tokens of the prompt that are in the KV cache
        self.ids: list[int] = []
        self.pieces: list[str] = []
        self.prefill_ns = self.decode_ns = 0
        self.reason = ""

    def words(self, after: int = 0) -> Array:
        """The sampler's words for the next token, or for one after it if no choice depends on the tokens before."""
        before = (self.prompt + self.ids)[-self.sampler.repeat_last_n :] if self.sampler.recalls else ()
        return self.sampler.words(len(self.ids) + after, before)

    def left(self, capacity: int) -> int:
        """How many tokens the reply may still have."""
        return min(self.limit - len(self.ids), capacity - len(self.prompt) - len(self.ids) + 1)

    def push(self, token: int, capacity: int) -> None:
        """Take the next token of the reply. It may be the last; then there is a `reason`."""
        if token in self.eos:
            self.reason = "eos"
            return
        self.ids.append(token)
        decoded = self.stream.push(token) if self.stream else f"{' ' * (len(self.ids) > 1)}{token}"
        self.pieces.append(self.stops.push(decoded))
        if self.stops.found:
            self.reason = "stop"
        elif len(self.ids) >= self.limit:
            self.reason = "length"
        elif len(self.prompt) + len(self.ids) > capacity:
            self.reason = "context"

    def completion(self) -> Completion:
        if not self.stops.found:
            rest = self.stops.push(self.stream.finish()) if self.stream else ""
            self.pieces.append(rest + self.stops.finish())
        seed = None if self.sampler.greedy else self.sampler.seed
        times = self.prefill_ns / 1e6, self.decode_ns / 1e6
        text, ids = "".join(self.pieces), tuple(self.ids)
        return Completion(self.job.id, text, ids, self.reason, len(self.prompt), *times, seed)


class _Queue:
    """The jobs that wait. The batches of a run take them from several threads."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = deque(jobs)
        self.waiting = Counter(beginning_of(job) for job in jobs)  # how many jobs wait for each beginning
        self.lock = threading.Lock()
        self.is_stopped = False  # a batch failed, or the caller wants no more completions


class BatchRun:
    """Runs jobs through batches, at most `parallel` at a time."""

    def __init__(self, llm: LLM, batches: Sequence[Batch], jobs: Sequence[Job], parallel: int) -> None:
        self.parallel = parallel
        self._queue = _Queue(jobs)
        counts = [count for count in shares(parallel, len(batches)) if count]
        self._lanes = [_Lane(llm, b, self._queue, most) for b, most in zip(batches, counts, strict=False)]

    def completions(self) -> Iterator[tuple[int, Completion]]:
        """Index and completion of each job, as they end."""
        if len(self._lanes) == 1:
            yield from self._lanes[0].completions()
            return
        done = SimpleQueue[tuple[int, Completion] | BaseException | None]()
        threads = [threading.Thread(target=_serve, args=(i, done), daemon=True, name="batch") for i in self._lanes]
        for thread in threads:
            thread.start()
        try:
            left = len(threads)
            while left:
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                if found is None:
                    left -= 1
                else:
                    yield found
        finally:
            self._queue.is_stopped = True
            for thread in threads:
                thread.join(AT_STOP)


def _serve(lane: _Lane, done: SimpleQueue[tuple[int, Completion] | BaseException | None]) -> None:
    """Pass the completions of a batch on, then None, or what ended them."""
    try:
        for found in lane.completions():
            done.put(found)
    except BaseException as error:
        done.put(error)
    else:
        done.put(None)


class _Lane:
    """One batch of a run, and the replies that it generates: at most `most` at a time."""

    def __init__(self, llm: LLM, batch: Batch, queue: _Queue, most: int) -> None:
        self.llm, self.batch, self.most = llm, batch, most
        self.capacity = min(llm.session.capacity, batch.context)
        self._queue = queue
        self._beginnings: dict[tuple[int, ...], _Beginning] = {}
        self._free = list(reversed(range(batch.sequences)))
        self._texts: list[_Sequence] = []

    def completions(self) -> Iterator[tuple[int, Completion]]:
        """Index and completion of each job that this batch takes, as they end."""
        session = self.llm.session
        while self._queue.jobs or self._texts:
            yield from self._admit()
            if session.interrupted() or self._queue.is_stopped:
                raise Stopped
            rows = self._rows()
            if not rows:
                continue  # every waiting job was refused
            start = time.perf_counter_ns()
            with session.guard():
                steps, stats = self._run(rows)
            wall_ns = max(0, time.perf_counter_ns() - start - stats.compile_ns)
            wanted = [owner for owner, row in rows if owner and row.words is not None]
            for ids in steps:
                for text in {id(text): text for text, _ in rows if text and not text.reason}.values():
                    if text.ids:
                        text.decode_ns += wall_ns // len(steps)
                    else:
                        text.prefill_ns += wall_ns
                for owner, token in zip(wanted, ids, strict=True):
                    if owner in self._texts:  # else the reply ended in an earlier step
                        yield from self._push(owner, token)

    def _run(self, rows: Sequence[tuple[_Sequence | None, Row]]) -> tuple[list[list[int]], CallStats]:
        """Run these rows, and further steps with them if all belong to replies. Returns the ids of each step."""
        calls = [row for _, row in rows]
        texts = [text for text, _ in rows if text and text.ids]
        if len(texts) < len(rows) or any(text.sampler.recalls for text in texts):
            ids, _, stats = self.batch.run(calls)
            return [ids], stats
        count = self.batch.together(min(text.left(self.capacity) for text in texts))
        return self.batch.decode(calls, [[text.words(k) for text in texts] for k in range(count)])

    def _admit(self) -> Iterator[tuple[int, Completion]]:
        """Give free caches to waiting jobs. A job with impossible options is an error, and ends at once."""
        self._release()
        while len(self._texts) < self.most and (job := self._take()):
            try:
                text = _Sequence(self.llm, job)
            except RunError as error:
                yield job.index, Completion(job.id, error=str(error))
                continue
            ids = beginning_of(job)
            text.slot = self._free.pop()
            if ids in self._beginnings:
                text.beginning, text.run = self._beginnings[ids], len(ids)
            self._texts.append(text)

    def _take(self) -> Job | None:
        """The next job if there are caches for it: its own, and one for a beginning that later jobs share with it."""
        jobs, waiting = self._queue.jobs, self._queue.waiting
        with self._queue.lock:
            if not jobs:
                return None
            ids = beginning_of(jobs[0])
            is_new = bool(ids) and ids not in self._beginnings and waiting[ids] > 1
            if len(self._free) < 1 + is_new:
                return None
            waiting[ids] -= 1
            if is_new:
                self._beginnings[ids] = _Beginning(ids, self._free.pop())
            return jobs.popleft()

    def _release(self) -> None:
        """Free the caches of beginnings that neither a waiting job nor a reply needs."""
        needed = {id(text.beginning) for text in self._texts}
        for ids, beginning in list(self._beginnings.items()):
            if not self._queue.waiting[ids] and id(beginning) not in needed:
                self._free.append(self._beginnings.pop(ids).slot)

    def _rows(self) -> list[tuple[_Sequence | None, Row]]:
        """The rows of the next call: a token of every reply, then tokens of prompts. Beginnings belong to no text."""
        rows: list[tuple[_Sequence | None, Row]] = [
            (text, self._row(text, text.ids[-1], len(text.prompt) + len(text.ids) - 1, wanted=True))
            for text in self._texts
            if text.ids
        ]
        for text in self._texts:
            begin = text.beginning
            while begin and begin.run < len(begin.ids) and len(rows) < self.batch.most_rows:
                rows.append((None, Row(begin.ids[begin.run], begin.slot, begin.run)))
                begin.run += 1
            while text.run < len(text.prompt) and len(rows) < self.batch.most_rows:
                wanted = text.run == len(text.prompt) - 1
                rows.append((text, self._row(text, text.prompt[text.run], text.run, wanted=wanted)))
                text.run += 1
        return rows

    def _row(self, text: _Sequence, token: int, position: int, *, wanted: bool) -> Row:
        begin, words = text.beginning, text.words() if wanted else None
        if begin is None:
            return Row(token, text.slot, position, words=words)
        return Row(token, text.slot, position, begin.slot, len(begin.ids), words)

    def _push(self, text: _Sequence, token: int) -> Iterator[tuple[int, Completion]]:
        """Give a reply its next token. If it is the last, the cache becomes free."""
        is_finite = 0 <= token < self.llm.session.interface.vocab
        if is_finite:
            text.push(token, self.capacity)
        if text.reason or not is_finite:
            self._texts.remove(text)
            self._free.append(text.slot)
            error = Completion(text.job.id, error="the logits are not finite")
            yield text.job.index, text.completion() if is_finite else error


def shares(count: int, parts: int) -> list[int]:
    """A number as so many numbers that differ by at most one."""
    return [(count + parts - 1 - i) // parts for i in range(parts)]


def beginning_of(job: Job) -> tuple[int, ...]:
    """The tokens that a job shares with other jobs, in whole blocks; none if they are few."""
    length = job.prefix // BLOCK * BLOCK
    return tuple(job.ids[:length]) if length >= LEAST_SHARED else ()


def batch_run(llm: LLM, jobs: Sequence[Job], parallel: int | None, fastest: int | None = None) -> BatchRun | str:
    """The run of these jobs, `parallel` at a time, or why the model can run only one at a time.

    With None, the number is `fastest` if an earlier run has measured it, else the largest power of two that memory has
    room for, or one that is faster.
    """
    extra = int(any(map(beginning_of, jobs)))  # a cache for the beginning that texts share
    most, problem = parallel or fastest or _fitting(llm, extra), "there is no memory for a second KV cache"
    while most > 1:
        try:
            batches = llm.batches(most, extra)
        except UnsupportedError as error:
            return str(error)
        except ShapeError as error:  # it does not fit the adapter or its memory
            if parallel:
                raise
            problem, most = str(error), most // 2
            continue
        most = min(most, sum(batch.most_rows for batch in batches))
        is_known = parallel or fastest or len(jobs) <= most
        return BatchRun(llm, batches, jobs, most if is_known else measured(batches, most))
    return problem


def _fitting(llm: LLM, extra: int) -> int:
    """The largest power of two, up to MOST, of sequences whose caches take a part of the free memory only."""
    free = available() if llm.model.device.limits.software else None
    room = UNKNOWN_MEMORY if free is None else free // 2
    count = MOST
    while count > 1 and (count + extra) * llm.model.cache_nbytes > room:
        count //= 2
    return count


def measured(batches: Sequence[Batch], most: int) -> int:
    """How many sequences at a time give most tokens per second: the fastest of `most` and its halves.

    It runs a few calls of the first batch with token 0 at position 0, which every sequence will overwrite.
    """
    speeds: dict[int, float] = {}
    count = most
    while count >= 2:
        rows = [Row(0, i, 0, words=GREEDY) for i in range(shares(count, len(batches))[0])]
        batches[0].run(rows)  # compiles
        times = []
        for _ in range(3):
            start = time.perf_counter_ns()
            batches[0].run(rows)
            times.append(time.perf_counter_ns() - start)
        speeds[count] = count / min(times)
        count //= 2
    return max(speeds, key=lambda n: speeds[n])
