"""Replies to many prompts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import DeviceError, RunError
from .language_model import LLM
from .request import Request
from .session import Stopped

LEAST_SHARED = 32  # tokens; a shorter common beginning is not worth a call of its own


@dataclass(frozen=True, slots=True)
class Completion:
    """The reply to one of many prompts, or why there is none."""

    id: str | int
    text: str = ""
    ids: tuple[int, ...] = ()
    reason: str = ""  # as in Reply
    prompt_tokens: int = 0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    seed: int | None = None  # None if it has no effect
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The row of an output file."""
        if self.error:
            return {"id": self.id, "error": self.error}
        return {
            "id": self.id,
            "text": self.text,
            "ids": list(self.ids),
            "reason": self.reason,
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": len(self.ids),
            "prefill_ms": round(self.prefill_ms, 3),
            "decode_ms": round(self.decode_ms, 3),
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Job:
    """A request that can be run: its place among the requests, its tokens and all of its options."""

    index: int
    id: str | int
    ids: Sequence[int]
    options: Mapping[str, Any]
    prefix: int = 0  # tokens that it shares with other jobs


class Many:
    """The replies to a list of requests. A row without a seed of its own has `seed` plus its index.

    With `chat`, a prompt is a message of the user; `system` comes before messages that have no system message.
    """

    def __init__(
        self,
        llm: LLM,
        requests: Sequence[Request],
        options: Mapping[str, Any],
        *,
        seed: int,
        chat: bool = False,
        system: str | None = None,
        parallel: int | None = 1,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.llm, self.requests = llm, requests
        self.options, self.seed = options, seed
        self.chat, self.system = chat, system
        self.parallel = parallel if len(requests) > 1 else 1  # None: as many as memory and speed suggest
        self._fastest: int | None = None  # how many at a time, once it has been measured
        self.warn = warn  # called if prompts must be run one at a time

    def run(self, indices: Sequence[int]) -> Generator[tuple[int, Completion]]:
        """The completions of these requests, in the order in which they end. Only a failing device raises an error."""
        wanted = frozenset(indices)
        jobs = []
        for index in range(len(self.requests)):
            job = self._job(index)
            if isinstance(job, Job):
                jobs.append(job)
            elif index in wanted:
                yield index, job
        jobs = [job for job in share(jobs) if job.index in wanted]
        if self.parallel != 1:
            from .batch import batch_run

            run = batch_run(self.llm, jobs, self.parallel, self._fastest)
            if not isinstance(run, str):
                if self.parallel is None and len(jobs) > run.parallel:
                    self._fastest = run.parallel
                yield from run.completions()
                return
            if self.warn:
                self.warn(f"prompts are run one at a time: {run}")
        for job in jobs:
            yield job.index, self._complete(job)

    def in_order(self) -> Iterator[Completion]:
        """All completions, in the order of the requests."""
        early: dict[int, Completion] = {}
        following = 0
        for index, completion in self.run(range(len(self.requests))):
            early[index] = completion
            while following in early:
                yield early.pop(following)
                following += 1

    def _job(self, index: int) -> Job | Completion:
        request = self.requests[index]
        if request.error:
            return Completion(request.id, error=request.error)
        options = {**self.options, "seed": (self.seed + index) % 2**64, **request.options}
        try:
            ids = request.tokens(self.llm, chat=self.chat, system=self.system)
        except DeviceError:
            raise
        except RunError as error:
            return Completion(request.id, error=str(error))
        return Job(index, request.id, ids, options)

    def _complete(self, job: Job) -> Completion:
        try:
            reply = self.llm.generate(job.ids, **job.options, prefix=job.prefix)
            reply.finish()
        except DeviceError:
            raise
        except RunError as error:
            return Completion(job.id, error=str(error))
        if reply.reason == "interrupt":
            raise Stopped
        stats = reply.stats
        seed = None if reply.is_greedy else reply.seed
        times = stats.prefill_ms, stats.decode_ms
        return Completion(job.id, reply.text, tuple(reply.ids), reply.reason, len(job.ids), *times, seed)


def share(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, those with a common beginning one after the other, each with the length of that beginning.

    It follows from all jobs, also those that are done already, so that a run that continues makes the same calls.
    """
    groups: dict[tuple[int, ...], list[Job]] = {}
    for job in jobs:
        alone = () if len(job.ids) > LEAST_SHARED else (job.index,)
        groups.setdefault(tuple(job.ids[:LEAST_SHARED]) + alone, []).append(job)
    out = []
    for group in groups.values():
        first = group[0].ids
        most = min(len(job.ids) - 1 for job in group) if len(group) > 1 else 0
        same = next((i for i in range(most) if any(job.ids[i] != first[i] for job in group)), most)
        out += [replace(job, prefix=same) for job in group]
    return out
