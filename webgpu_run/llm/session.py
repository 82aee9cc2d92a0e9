"""A conversation with a language model: positions, prefill in chunks, decode, and why a reply ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from ..errors import CheckError, ShapeError, UnsupportedError
from ..formats.pte import Method, Tensor
from ..gpu.callstats import CallStats
from ..gpu.residency import ProgressCallback
from ..runtime.calls import Call, Observer
from ..runtime.decode import Decoder
from ..runtime.model import Model
from ..shapes import Array
from .sampling import Sampler


class Stopped(KeyboardInterrupt):
    """Ctrl-C between two chunks of a prompt. The session is as it was after the last complete chunk."""


@dataclass(frozen=True, slots=True)
class Interface:
    """What a language model takes and returns, as its file declares it."""

    vocab: int
    largest: int  # most tokens per call
    capacity: int  # positions in its context

    @classmethod
    def of(cls, method: Method, metadata: Mapping[str, object]) -> Interface:
        """Refuses a method that is not a language model."""
        inputs, outputs = ([method.values[v] for v in ids] for ids in (method.inputs, method.outputs))
        tokens, position = inputs if len(inputs) == 2 else (None, None)
        whole = all(isinstance(t, Tensor) and t.dtype in ("int64", "int32") for t in (tokens, position))
        if not whole or tokens.dims[:-1] != (1,) or position.dims != (1,):  # type: ignore[union-attr]
            takes = ", ".join(f"{t.dtype} {list(t.dims)}" for t in inputs if isinstance(t, Tensor)) or "nothing"
            raise UnsupportedError(
                f"{method.name!r} takes {takes}; a language model takes tokens [1, S] and a position [1]",
                hint="--input x.npy --output DIR runs any model",
            )
        logits = outputs[0] if outputs else None
        if not isinstance(logits, Tensor) or not logits.dtype.startswith("float") or len(logits.dims) < 2:
            raise UnsupportedError(f"{method.name!r} gives no logits")
        said = metadata.get("get_max_context_len", metadata.get("get_max_seq_len"))
        capacity = said if isinstance(said, int) and said > 0 else 2**31 - 1
        return cls(logits.dims[-1], tokens.dims[1], capacity)  # type: ignore[union-attr]

    def check(self, ids: Sequence[int], position: int = 0) -> None:
        """Refuse ids outside the vocabulary, and more tokens than the context has room for."""
        if not ids:
            raise ShapeError("there are no tokens to run")
        bad = next((i for i in ids if not 0 <= i < self.vocab), None)
        if bad is not None:
            raise ShapeError(f"token id {bad} is outside the model's vocabulary of {self.vocab}")
        if len(ids) > self.capacity - position:
            also = f", {position} are taken" if position else ""
            raise ShapeError(f"{len(ids)} tokens do not fit the context of {self.capacity} positions{also}")


class Session:
    """A model with a position in its KV cache.

    `step` returns the logits of the last token; `advance` returns the id that the device chose.
    """

    def __init__(
        self,
        model: Model,
        *,
        chunk: int | None = None,
        timed: bool = False,
        observers: Sequence[Observer] = (),
        progress: ProgressCallback | None = None,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
        ahead: bool | None = None,
    ) -> None:
        self.model = model
        self.decoder = Decoder(model, ahead)
        self.guard = guard
        self.timed = timed
        self.observers = list(observers)
        self.progress = progress
        self.calls: list[Call] = []
        self.ids: list[int] = []  # the tokens in the KV cache
        interface = Interface.of(model.method, model.metadata)
        # These plans are still those of the largest number of tokens.
        bounds = [b for runner in model.runners for plan in runner.engine.plans for b in plan.bounds]
        capacity = min([interface.capacity, *(b.high + interface.largest for b in bounds)])
        self.interface = Interface(interface.vocab, interface.largest, capacity)
        self.chunk = min(chunk or interface.largest, interface.largest)

    @property
    def position(self) -> int:
        return len(self.ids)

    @property
    def capacity(self) -> int:
        return self.interface.capacity

    @property
    def room(self) -> int:
        """How many more tokens fit the context."""
        return self.capacity - self.position

    def prefill(self, ids: Sequence[int], interrupted: Callable[[], bool] = lambda: False) -> Array:
        """Run these tokens in chunks. If they do not fit the context, none of them is run."""
        self.interface.check(ids, self.position)
        out: Array | None = None
        for at in range(0, len(ids), self.chunk):
            if interrupted():
                raise Stopped
            if self.progress:
                self.progress("prefill", at, len(ids))
            out = self.step(ids[at : at + self.chunk], "prefill")
        if self.progress:
            self.progress("prefill", len(ids), len(ids))
        assert out is not None
        return out

    def step(self, ids: Sequence[int], phase: str = "decode") -> Array:
        """Run one call at the current position."""
        self.decoder.settle()
        tokens = np.asarray([ids], self.model.inputs[0].dtype)
        position = np.asarray([self.position], self.model.inputs[1].dtype)
        start = time.perf_counter_ns()
        with self.guard():
            logits = self.model.run([tokens, position], timed=self.timed)[0]
        self._record(phase, ids, start, time.perf_counter_ns() - start, self.model.stats)
        row: Array = logits.reshape(-1, logits.shape[-1])[-1]
        if not np.isfinite(row.max()):  # a single NaN is the largest
            raise self._not_finite()
        return row

    def advance(self, token: int, sampler: Sampler, index: int, *, left: int = 0) -> int:
        """The id after `token`, which is number `index` of the reply. `left` is as in `Decoder.next`."""
        # Observers look at the state that this call left, so no further step may run before them.
        left = 0 if self.observers or self.timed else max(0, min(left, self.room - 1))
        with self.guard():
            chosen = self.decoder.next(
                token, self.position, lambda k: sampler.words(index + k), left=left, timed=self.timed
            )
        self._record("decode", [token], chosen.start_ns, chosen.wall_ns, chosen.stats)
        if not 0 <= chosen.id < self.interface.vocab:
            raise self._not_finite()
        return chosen.id

    def _record(self, phase: str, ids: Sequence[int], start_ns: int, wall_ns: int, stats: CallStats) -> None:
        shapes = ((1, len(ids)), (1,))
        call = Call(len(self.calls), phase, len(ids), self.position, start_ns, wall_ns, stats, shapes)
        self.ids += ids
        self.calls.append(call)
        for observer in self.observers:
            observer(call)

    def _not_finite(self) -> CheckError:
        """An error that names the op: runs the last call again, node by node."""
        from ..debug.stepping import blame

        self.decoder.settle()
        call = self.calls[-1]
        tokens = np.asarray([self.ids[call.position :]], self.model.inputs[0].dtype)
        what = blame(self.model, [tokens, np.asarray([call.position], self.model.inputs[1].dtype)])
        return CheckError(f"the logits are not finite: {what}" if what else "the logits are not finite")

    def rewind(self, position: int) -> None:
        """Go back to an earlier position. Cache rows beyond it are never read, and will be overwritten."""
        self.decoder.settle()
        del self.ids[position:]


class Reply:
    """The reply to a prompt. Iterate over its ids; then `reason` says why it ended.

    Reasons are eos, length, context, interrupt, and stop (the reader called `stop`).
    """

    def __init__(
        self,
        session: Session,
        prompt: Sequence[int],
        sampler: Sampler,
        *,
        limit: int,
        eos: frozenset[int] = frozenset(),
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.session, self.prompt, self.sampler = session, list(prompt), sampler
        self.limit, self.eos, self.interrupted = limit, eos, interrupted
        self.ids: list[int] = []
        self.reason = ""

    @property
    def pending(self) -> list[int]:
        """Ids of the reply that are not in the KV cache: the last one, which has not been run."""
        return self.ids[-1:] if self.reason not in ("", "eos") else []

    def stop(self) -> None:
        """End the reply after the last token."""
        self.reason = "stop"

    def __iter__(self) -> Iterator[int]:
        token = self.sampler.pick(self.session.prefill(self.prompt, self.interrupted), 0)
        while True:
            if token in self.eos:
                self.reason = "eos"
                return
            self.ids.append(token)
            yield token
            if self.reason:
                return
            if len(self.ids) >= self.limit:
                self.reason = "length"
            elif self.interrupted():
                self.reason = "interrupt"
            elif not self.session.room:
                self.reason = "context"
            if self.reason:
                return
            if self.session.model.chooses:
                token = self.session.advance(token, self.sampler, len(self.ids), left=self.limit - len(self.ids) - 1)
            else:
                token = self.sampler.pick(self.session.step([token]), len(self.ids))
