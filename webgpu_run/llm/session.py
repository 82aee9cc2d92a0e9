"""A conversation with a language model: positions, prefill in chunks, decode, and why a reply ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from ..errors import CheckError, ShapeError, UnsupportedError
from ..formats.pte import Method, Tensor
from ..gpu.callstats import CallStats
from ..gpu.executor import Watch
from ..gpu.residency import ProgressCallback
from ..runtime.calls import ModelCall, Observer
from ..runtime.decode import Decoder
from ..runtime.model import Model
from ..shapes import Array
from .lookup import LookupDecoder
from .sampling import Sampler


class Stopped(KeyboardInterrupt):
    """Ctrl-C during a prefill. The session is as it was after the last complete chunk."""


class ContextFullError(ShapeError):
    """The tokens do not fit the context."""


@dataclass(frozen=True, slots=True)
class Interface:
    """What a language model takes and returns, as its file declares it."""

    vocab: int
    largest: int  # most tokens per call
    capacity: int  # positions in its context
    per_token: bool = False  # it takes the position of every token, not only of the first

    @classmethod
    def of(cls, method: Method, metadata: Mapping[str, object]) -> Interface:
        """Refuses a method that is not a language model."""
        inputs, outputs = ([method.values[v] for v in ids] for ids in (method.inputs, method.outputs))
        tokens, position = inputs if len(inputs) == 2 else (None, None)
        whole = all(isinstance(t, Tensor) and t.dtype in ("int64", "int32") for t in (tokens, position))
        per_token = whole and position.dims == tokens.dims[1:] != (1,)  # type: ignore[union-attr]
        if not whole or tokens.dims[:-1] != (1,) or not (per_token or position.dims == (1,)):  # type: ignore[union-attr]
            takes = ", ".join(str(t) for t in inputs if isinstance(t, Tensor)) or "nothing"
            raise UnsupportedError(
                f"{method.name!r} takes {takes}; a language model takes tokens [1, S] and a position [1] or [S]",
                hint="--input FILE, once for each input, runs any model",
            )
        logits = outputs[0] if outputs else None
        if not isinstance(logits, Tensor) or not logits.dtype.startswith("float") or len(logits.dims) < 2:
            raise UnsupportedError(f"{method.name!r} gives no logits")
        said = metadata.get("get_max_context_len", metadata.get("get_max_seq_len"))
        capacity = said if isinstance(said, int) and said > 0 else 2**31 - 1
        return cls(logits.dims[-1], tokens.dims[1], capacity, per_token)  # type: ignore[union-attr]

    def positions(self, first: int, count: int) -> range:
        """The second input of a call with `count` tokens."""
        return range(first, first + (count if self.per_token else 1))

    def check(self, ids: Sequence[int], position: int = 0) -> None:
        """Refuse ids outside the vocabulary, and more tokens than the context has room for."""
        if not ids:
            raise ShapeError("there are no tokens to run")
        bad = next((i for i in ids if not 0 <= i < self.vocab), None)
        if bad is not None:
            raise ShapeError(f"token id {bad} is outside the model's vocabulary of {self.vocab}")
        if len(ids) > self.capacity - position:
            also = f", {position} are taken" if position else ""
            raise ContextFullError(f"{len(ids)} tokens do not fit the context of {self.capacity} positions{also}")


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
        interrupted: Callable[[], bool] = lambda: False,
        ahead: bool | None = None,
        lookup: bool = False,
    ) -> None:
        self.model = model
        has_lookup = lookup and model.most_verified > 0
        self.decoder = LookupDecoder(model, lambda: self.ids, ahead) if has_lookup else Decoder(model, ahead)
        self.guard = guard
        self.interrupted = interrupted  # whether to stop after the current chunk or token
        self.timed = timed
        self.observers = list(observers)
        self.progress = progress
        self.calls: list[ModelCall] = []  # the owner may replace the list, which would grow without end
        self._call_count = 0
        self.ids: list[int] = []  # the tokens in the KV cache
        interface = Interface.of(model.method, model.metadata)
        # These plans are still those of the largest number of tokens.
        bounds = [b for runner in model.runners for plan in runner.engine.plans for b in plan.bounds]
        capacity = min([interface.capacity, *(b.high + interface.largest for b in bounds)])
        self.interface = replace(interface, capacity=capacity)
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

    def prefill(self, ids: Sequence[int]) -> Array:
        """Run these tokens in chunks. If they do not fit the context, none of them is run."""
        self.interface.check(ids, self.position)
        out: Array | None = None
        for at in range(0, len(ids), self.chunk):
            if self.interrupted():
                raise Stopped
            if self.progress:
                self.progress("prefill", at, len(ids))
            part = ids[at : at + self.chunk]
            out = self.rows(part, "prefill", self._watch(at, len(part), len(ids)))[-1]
        if self.progress:
            self.progress("prefill", len(ids), len(ids))
        assert out is not None
        return out

    def step(self, ids: Sequence[int], phase: str = "decode") -> Array:
        """Run one call at the current position; returns the logits of the last token."""
        row: Array = self.rows(ids, phase)[-1]
        return row

    def _watch(self, at: int, count: int, total: int) -> Watch | None:
        """Moves the progress bar during a chunk of `count` tokens, if the model is a single delegate."""
        progress = self.progress
        if not progress or len(self.model.runners) > 1:
            return None
        return lambda share: progress("prefill", at + int(share * count), total)

    def rows(self, ids: Sequence[int], phase: str, watch: Watch | None = None) -> Array:
        """Run one call at the current position; returns what the file returns, logits of every token or of the last."""
        self.decoder.settle()
        tokens = np.asarray([ids], self.model.inputs[0].dtype)
        position = np.asarray(self.interface.positions(self.position, len(ids)), self.model.inputs[1].dtype)
        start = time.perf_counter_ns()
        with self.guard():
            logits = self.model.run([tokens, position], timed=self.timed, watch=watch)[0]
        self._record(phase, ids, start, time.perf_counter_ns() - start, self.model.stats)
        rows: Array = logits.reshape(-1, logits.shape[-1])
        if not np.isfinite(rows[-1].max()):  # a single NaN is the largest
            raise self._not_finite()
        return rows

    def advance(self, token: int, sampler: Sampler, index: int, *, left: int = 0) -> int:
        """The id after `token`, which is number `index` of the reply. `left` is as in `Decoder.next`."""
        # Observers look at the state that this call left, so no further step may run before them.
        # A repeat penalty needs each id on the host before the next step.
        is_alone = self.observers or self.timed or sampler.recalls
        left = 0 if is_alone else max(0, min(left, self.room - 1))
        before = self.last(sampler.repeat_last_n, token) if sampler.recalls else ()
        with self.guard():
            chosen = self.decoder.next(
                token, self.position, lambda k: sampler.words(index + k, before), left=left, timed=self.timed
            )
        self._record("decode", [token], chosen.start_ns, chosen.wall_ns, chosen.stats)
        if not 0 <= chosen.id < self.interface.vocab:
            raise self._not_finite()
        return chosen.id

    def last(self, count: int, *more: int) -> list[int]:
        """The last tokens of the KV cache, and `more`."""
        return [*self.ids[-count:], *more]

    def _record(self, phase: str, ids: Sequence[int], start_ns: int, wall_ns: int, stats: CallStats) -> None:
        shapes = ((1, len(ids)), (len(self.interface.positions(0, len(ids))),))
        call = ModelCall(self._call_count, phase, len(ids), self.position, start_ns, wall_ns, stats, shapes)
        self.ids += ids
        self._call_count += 1
        self.calls.append(call)
        for observer in self.observers:
            observer(call)

    def _not_finite(self) -> CheckError:
        """An error that names the op: runs the last call again, node by node."""
        from ..debug.stepping import blame

        self.decoder.settle()
        call = self.calls[-1]
        tokens = np.asarray([self.ids[call.position :]], self.model.inputs[0].dtype)
        positions = np.asarray(self.interface.positions(call.position, tokens.shape[1]), self.model.inputs[1].dtype)
        what = blame(self.model, [tokens, positions])
        return CheckError(f"the logits are not finite: {what}" if what else "the logits are not finite")

    def rewind(self, position: int) -> None:
        """Go back to an earlier position. Cache rows beyond it are never read, and will be overwritten."""
        self.decoder.settle()
        del self.ids[position:]


class TokenStream:
    """The ids of the reply to a prompt. Iterate over them once; then `reason` says why the reply ended.

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
        prefix: int = 0,
    ) -> None:
        self.session, self.prompt, self.sampler = session, list(prompt), sampler
        self.prefix = prefix  # tokens of the prompt that are prefilled apart from the rest
        self.start = session.position
        self.limit, self.eos = limit, eos
        self.ids: list[int] = []
        self.reason = ""

    def stop(self) -> None:
        """End the reply after the last token."""
        self.reason = "stop"

    def __iter__(self) -> Iterator[int]:
        session, recent = self.session, self.sampler.repeat_last_n
        if self.prefix:
            session.interface.check(self.prompt, session.position)
            session.prefill(self.prompt[: self.prefix])
        token = self.sampler.pick(session.prefill(self.prompt[self.prefix :]), 0, session.last(recent))
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
            elif session.interrupted():
                self.reason = "interrupt"
            elif not session.room:
                self.reason = "context"
            if self.reason:
                return
            if session.model.chooses:
                token = session.advance(token, self.sampler, len(self.ids), left=self.limit - len(self.ids) - 1)
            else:
                logits = session.step([token])
                token = self.sampler.pick(logits, len(self.ids), session.last(recent))
