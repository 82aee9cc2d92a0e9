"""Replies to many prompts at the same time: sequences share each call of the model, and come and go between calls.

A call has one row for each sequence that is being decoded, and as many tokens of waiting prompts as still fit. When a
reply ends, the next prompt takes its place.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from ..errors import DeviceError, RunError, ShapeError, UnsupportedError, UsageError
from ..graph.host_memory import available
from ..ops.choice import GREEDY
from ..runtime.batch import Batch, Row, copies_of, shares
from ..shapes import Array
from .language_model import LLM
from .many import LEAST_SHARED, Completion, Job
from .options import Options
from .session import Stopped
from .tokenizer import StopStrings, TextStream

MOST = 16  # sequences at a time, if their number is not given
UNKNOWN_MEMORY = 1 << 30  # bytes for their caches, where the adapter does not tell how much memory it has
BLOCK = 8  # a shared beginning is a multiple of this long
AT_STOP = 2.0  # seconds to wait for calls that are under way when a run is left before its end


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


_Rows = list[tuple["_Sequence | None", Row]]  # of a call; rows of beginnings belong to no text


class _Copy:
    """The model, or a copy of it, in a run: its batch, and at most `most` replies that it generates at a time."""

    def __init__(self, batch: Batch, most: int) -> None:
        self.batch, self.most = batch, most
        self.beginnings: dict[tuple[int, ...], _Beginning] = {}
        self.free = list(reversed(range(batch.sequences)))
        self.texts: list[_Sequence] = []
        self.under_way: _Rows = []  # the rows of the call that its thread makes
        self.calls = SimpleQueue[_Rows]()  # for its thread; no rows end it

    def run(self, rows: _Rows, capacity: int) -> _Tokens:
        """Run these rows, and further steps with them if all belong to replies."""
        calls, start = [row for _, row in rows], time.perf_counter_ns()
        texts = [text for text, _ in rows if text and text.ids]
        if len(texts) < len(calls) or any(text.sampler.recalls for text in texts):
            ids, _, stats = self.batch.run(calls)
            steps = [ids]
        else:
            count = self.batch.together(min(text.left(capacity) for text in texts))
            steps, stats = self.batch.decode(calls, [[text.words(k) for text in texts] for k in range(count)])
        return _Tokens(steps, max(0, time.perf_counter_ns() - start - stats.compile_ns))

    def serve(self, capacity: int, done: SimpleQueue[tuple[_Copy, _Tokens | BaseException]]) -> None:
        """What the thread does: nothing but calls, so that the state of the run belongs to the caller's thread."""
        while rows := self.calls.get():
            try:
                done.put((self, self.run(rows, capacity)))
            except BaseException as error:
                done.put((self, error))


class _Tokens(NamedTuple):
    """What a call chose: the ids of each step, and its time without compilation."""

    steps: list[list[int]]
    wall_ns: int


class BatchRun:
    """Runs jobs through batches, at most `parallel` at a time.

    Each batch has a thread for its calls. A batch whose call is done gets the next one while the others compute.
    """

    def __init__(self, llm: LLM, batches: Sequence[Batch], jobs: Sequence[Job], parallel: int, extra: int = 0) -> None:
        self.llm, self.parallel = llm, parallel
        self.capacity = min(llm.session.capacity, batches[0].context)
        self._jobs = deque(jobs)
        self._waiting = Counter(beginning_of(job) for job in jobs)  # how many jobs wait for each beginning
        self._copies = list(map(_Copy, batches, shares(min(parallel, len(jobs)), batches, extra)))
        self._done = SimpleQueue[tuple[_Copy, _Tokens | BaseException]]()
        self._is_stopped = False

    def completions(self) -> Iterator[tuple[int, Completion]]:
        """Index and completion of each job, as they end. After Ctrl-C, the calls that are under way are the last."""
        self.llm.begin(self)
        for copy in self._copies:
            args = (self.capacity, self._done)
            threading.Thread(target=copy.serve, args=args, daemon=True, name="batch").start()
        try:
            while self._jobs or any(copy.texts for copy in self._copies):
                is_ending = self.llm.session.interrupted()
                for copy in self._copies:
                    if not (copy.under_way or is_ending):
                        yield from self._admit(copy)
                        self._start(copy)
                if any(copy.under_way for copy in self._copies):
                    yield from self._take(*self._next())
                elif is_ending:
                    raise Stopped
        except DeviceError:
            self.llm.drop_batches()
            raise
        finally:
            self.stop(AT_STOP)
            self.llm.end(self)

    def stop(self, limit_s: float | None = None) -> None:
        """Wait for the calls that are under way; afterwards there are no more. Slower batches are given up."""
        self._is_stopped, start = True, time.monotonic()
        for copy in self._copies:
            copy.calls.put([])
        while any(copy.under_way for copy in self._copies):
            left = None if limit_s is None else max(0.0, start + limit_s - time.monotonic())
            try:
                self._done.get(timeout=left)[0].under_way = []
            except Empty:
                self.llm.drop_batches()
                break

    def _start(self, copy: _Copy) -> None:
        if self._is_stopped:
            raise UsageError("these prompts cannot go on: another run of prompts has begun on the same model")
        copy.under_way = self._rows(copy)
        if copy.under_way:  # else every waiting job was refused
            copy.calls.put(copy.under_way)

    def _next(self) -> tuple[_Copy, _Rows, _Tokens]:
        """Wait for the next call to end; returns its rows and their tokens."""
        with self.llm.session.guard():
            copy, tokens = self._done.get()
        rows, copy.under_way = copy.under_way, []
        if isinstance(tokens, BaseException):
            raise tokens
        return copy, rows, tokens

    def _take(self, copy: _Copy, rows: _Rows, tokens: _Tokens) -> Iterator[tuple[int, Completion]]:
        """Give the tokens of a call to its replies; its time is theirs."""
        wanted = [owner for owner, row in rows if owner and row.words is not None]
        for ids in tokens.steps:
            for text in {id(text): text for text, _ in rows if text and not text.reason}.values():
                if text.ids:
                    text.decode_ns += tokens.wall_ns // len(tokens.steps)
                else:
                    text.prefill_ns += tokens.wall_ns
            for owner, token in zip(wanted, ids, strict=True):
                if owner in copy.texts:  # else the reply ended in an earlier step
                    yield from self._push(copy, owner, token)

    def _admit(self, copy: _Copy) -> Iterator[tuple[int, Completion]]:
        """Give free caches to waiting jobs. A job with impossible options is an error, and ends at once."""
        needed = {id(text.beginning) for text in copy.texts}
        for ids, beginning in list(copy.beginnings.items()):
            if not self._waiting[ids] and id(beginning) not in needed:
                copy.free.append(copy.beginnings.pop(ids).slot)
        while self._jobs and len(copy.texts) < copy.most:
            job = self._jobs[0]
            ids = beginning_of(job)
            is_new = bool(ids) and ids not in copy.beginnings and self._waiting[ids] > 1
            if len(copy.free) < 1 + is_new:
                return
            self._jobs.popleft()
            self._waiting[ids] -= 1
            try:
                text = _Sequence(self.llm, job)
            except RunError as error:
                yield job.index, Completion(job.id, error=str(error))
                continue
            if is_new:
                copy.beginnings[ids] = _Beginning(ids, copy.free.pop())
            text.slot = copy.free.pop()
            if ids in copy.beginnings:
                text.beginning, text.run = copy.beginnings[ids], len(ids)
            copy.texts.append(text)

    def _rows(self, copy: _Copy) -> _Rows:
        """The rows of the next call: a token of every reply, then tokens of prompts."""
        most = copy.batch.most_rows
        rows: _Rows = [
            (text, self._row(text, text.ids[-1], len(text.prompt) + len(text.ids) - 1, wanted=True))
            for text in copy.texts
            if text.ids
        ]
        for text in copy.texts:
            begin = text.beginning
            while begin and begin.run < len(begin.ids) and len(rows) < most:
                rows.append((None, Row(begin.ids[begin.run], begin.slot, begin.run)))
                begin.run += 1
            while text.run < len(text.prompt) and len(rows) < most:
                wanted = text.run == len(text.prompt) - 1
                rows.append((text, self._row(text, text.prompt[text.run], text.run, wanted=wanted)))
                text.run += 1
        return rows

    def _row(self, text: _Sequence, token: int, position: int, *, wanted: bool) -> Row:
        begin, words = text.beginning, text.words() if wanted else None
        if begin is None:
            return Row(token, text.slot, position, words=words)
        return Row(token, text.slot, position, begin.slot, len(begin.ids), words)

    def _push(self, copy: _Copy, text: _Sequence, token: int) -> Iterator[tuple[int, Completion]]:
        """Give a reply its next token. If it is the last, the cache becomes free."""
        is_finite = 0 <= token < self.llm.session.interface.vocab
        if is_finite:
            text.push(token, self.capacity)
        if text.reason or not is_finite:
            copy.texts.remove(text)
            copy.free.append(text.slot)
            error = Completion(text.job.id, error="the logits are not finite")
            yield text.job.index, text.completion() if is_finite else error


def beginning_of(job: Job) -> tuple[int, ...]:
    """The tokens that a job shares with other jobs, in whole blocks; none if they are few."""
    length = job.prefix // BLOCK * BLOCK
    return tuple(job.ids[:length]) if length >= LEAST_SHARED else ()


def batch_run(llm: LLM, jobs: Sequence[Job], parallel: int | None, fastest: int | None = None) -> BatchRun | str:
    """The run of these jobs, `parallel` at a time, or why the model can run only one at a time.

    With None, the number is `fastest` if an earlier run has measured it, else the largest power of two that memory has
    room for, or one that is faster.
    """
    llm.end_unfinished()
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
        return BatchRun(llm, batches, jobs, most if is_known else measured(batches, most, extra), extra)
    return problem


def _fitting(llm: LLM, extra: int) -> int:
    """The largest power of two, up to MOST, of sequences whose caches take a part of the free memory only."""
    free = available() if llm.model.device.limits.software else None
    room = UNKNOWN_MEMORY if free is None else free // 2
    count = MOST
    while count > 1:
        copies = copies_of(llm.model, count)
        if (count + extra * copies) * llm.model.cache_nbytes + (copies - 1) * llm.model.program.file_size <= room:
            break
        count //= 2
    return count


def measured(batches: Sequence[Batch], most: int, extra: int = 0) -> int:
    """How many sequences at a time give most tokens per second: the fastest of `most` and its halves.

    It runs a few calls of the first batch with token 0 at position 0, which every sequence will overwrite.
    """
    speeds: dict[int, float] = {}
    count = most
    while count >= 2:
        rows = [Row(0, i, 0, words=GREEDY) for i in range(shares(count, batches, extra)[0])]
        batches[0].run(rows)  # compiles
        times = []
        for _ in range(3):
            start = time.perf_counter_ns()
            batches[0].run(rows)
            times.append(time.perf_counter_ns() - start)
        speeds[count] = count / min(times)
        count //= 2
    return max(speeds, key=lambda n: speeds[n])
