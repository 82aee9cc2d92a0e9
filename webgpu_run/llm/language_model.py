"""`webgpu_run.LLM`: a language model that generates text, chats, and gives the probability of texts."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..debug.timings import Timings
from ..debug.trace import CallTrace, Trace, Tracer
from ..errors import RunError, UsageError
from ..formats.digest import digest, digest_ahead
from ..gpu.device import Device
from ..gpu.residency import ProgressCallback
from ..runtime.batch import Batch, open_batches
from ..runtime.calls import Observer
from ..runtime.model import Model
from ..runtime.open import open_model, open_program
from . import prompt_cache
from . import tokenizer as tokenizers
from .lookup import MOST_ROWS
from .options import Options, ReplyOptions, takes_reply_options
from .reply import Reply
from .sampling import random_seed
from .session import ContextFullError, Interface, Session, TokenStream
from .template import Template, find_template
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .batch import BatchRun
    from .many import Completion


class LLM:
    """A language model on a device.

    `path` is a .pte file, or a folder with one; without it the bundled model is used. The tokenizer and the chat
    template are found beside the model, or at `tokenizer` and `template`. `device` is part of an adapter's name, its
    index, or cpu, gpu, vulkan, metal or d3d12. `kv` is the format of the KV cache: f32, f16, or auto, which is f16 on
    GPUs that compute with it. `data` are .ptd files that are not beside the model. `chunk` limits the tokens per
    prefill call. With `lookup`, text that repeats itself is generated faster: see docs/guide.md. With `hash_ahead`, the
    hash of the model, which the first `load` or `save` needs, is computed while the model is loaded. `progress` is
    called with (what, done, total).

    A call that is interrupted or refused leaves a model that works. One thread at a time may use it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        device: Device | str | None = None,
        kv: str = "auto",
        tokenizer: str | os.PathLike[str] | None = None,
        template: str | os.PathLike[str] | None = None,
        data: Sequence[str | os.PathLike[str]] = (),
        method: str | None = None,
        chunk: int | None = None,
        fuse: bool = True,
        tune: bool = True,
        lookup: bool = False,
        hash_ahead: bool = False,
        progress: ProgressCallback | None = None,
    ) -> None:
        program = open_program(path, data)
        digest_of = digest_ahead(program) if hash_ahead else None
        Interface.of(program.method(method), program.metadata)
        found: Tokenizer | RunError
        try:
            found = tokenizers.find(program.path, os.fspath(tokenizer) if tokenizer is not None else None)
        except RunError as error:
            if tokenizer is not None:
                raise
            found = error  # token ids need no tokenizer
        chat_template: Template | RunError
        try:
            chat_template = _template(found, template)
        except RunError as error:
            if template is not None:
                raise
            chat_template = error
        verify = MOST_ROWS if lookup else 0
        model = open_model(
            program, device, method=method, fuse=fuse, tune=tune, kv=kv, verify=verify, progress=progress
        )
        # With a progress callback a long prefill is submitted in parts, so that the device is free soon after Ctrl-C.
        session = Session(model, chunk=chunk, progress=progress or _no_progress, lookup=lookup)
        self._begin(session, found, chat_template, digest_of)

    @classmethod
    def of(
        cls,
        session: Session,
        tokenizer: Tokenizer | None,
        template: Template | None = None,
        digest_of: Callable[[], str] | None = None,
    ) -> LLM:
        """A language model from parts that exist already, as the commands have them."""
        llm = cls.__new__(cls)
        found = tokenizer or UsageError("there is no tokenizer: the prompt must be token ids")
        llm._begin(session, found, template or UsageError("there is no chat template"), digest_of)
        return llm

    def _begin(
        self,
        session: Session,
        tokenizer: Tokenizer | RunError,
        template: Template | RunError,
        digest_of: Callable[[], str] | None,
    ) -> None:
        self.session = session
        self._tokenizer, self._template = tokenizer, template
        self._last: Reply | None = None
        self._batches: tuple[Batch, ...] = ()
        self._run: BatchRun | None = None  # the run of prompts that uses the batches
        # A hash of its files, which takes a while.
        self._digest = functools.cache(digest_of or functools.partial(digest, session.model.program))
        self._is_chat = False  # whether the last reply was a chat's
        self._parts: list[tuple[str, list[int]]] = []  # a chat's questions and replies, as text and as tokens

    @property
    def model(self) -> Model:
        """The model below: numpy in, numpy out."""
        return self.session.model

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer: `encode_prompt`, `encode_plain`, `decode`."""
        if isinstance(self._tokenizer, RunError):
            raise self._tokenizer
        return self._tokenizer

    @property
    def template(self) -> Template:
        """The chat template."""
        if isinstance(self._template, RunError):
            raise self._template
        return self._template

    @property
    def has_template(self) -> bool:
        """True if the model has a chat template."""
        return isinstance(self._template, Template)

    @property
    def has_tokenizer(self) -> bool:
        """True if there is a tokenizer, so that prompts can be texts."""
        return not isinstance(self._tokenizer, RunError)

    @property
    def context(self) -> int:
        """The most tokens that prompt and reply can have together."""
        return self.session.capacity

    def __repr__(self) -> str:
        name = Path(self.model.program.path).name
        used = f"{self.session.position} of {self.context} positions used"
        return f"<LLM {name} on {self.model.device.name}, context: {used}>"

    @takes_reply_options
    def generate(self, prompt: str | Sequence[int], *, prefix: int = 0, **options: Unpack[ReplyOptions]) -> Reply:
        """Continue a text, or token ids. Text is generated when the reply is iterated over or read.

        With `max_new_tokens` None or -1 the reply ends only by itself or where the context is full. A temperature of 0
        always takes the likeliest token. A `repeat_penalty` above 1 makes the last `repeat_last_n` tokens less likely:
        their logits are divided by it if they are positive, else multiplied. The same `seed` gives the same reply; by
        default it is random. The first `prefix` tokens are prefilled apart from the rest, and not again if the call
        before had them too: give all prompts that share a beginning its length.
        """
        wanted = Options(**options)
        ids = self.tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else list(prompt)
        if not ids:
            raise UsageError("the prompt is empty")
        self._end_last()
        self.session.interface.check(ids)
        if not 0 <= prefix < len(ids):
            raise UsageError(f"prefix is {prefix}, the prompt has {len(ids)} tokens")
        is_known = prefix and self.session.ids[:prefix] == ids[:prefix]
        self.session.rewind(prefix if is_known else 0)
        if is_known:
            ids, prefix = ids[prefix:], 0
        return self._reply(ids, wanted, prefix)

    @takes_reply_options
    def chat(self, messages: Sequence[Mapping[str, str]], **options: Unpack[ReplyOptions]) -> Reply:
        """The model's reply to these messages, dictionaries with a `role` and a `content`. See `generate`.

        The chat template turns messages into text. Tokens that the KV cache has from the call before are not run again.
        """
        wanted = Options(**options)
        text = self.template.render(messages)
        self._end_last()
        ids = self._after_common_prefix(self._ids_of_chat(text))
        if not ids:
            raise UsageError("the chat template made an empty text")
        if len(ids) > self.session.room:
            total = self.session.position + len(ids)
            raise ContextFullError(f"the chat has {total} tokens with its template, the context {self.context}")
        self.session.interface.check(ids, self.session.position)
        self._is_chat = True
        return self._reply(ids, wanted)

    @takes_reply_options
    def generate_many(
        self,
        prompts: Iterable[str | Sequence[int] | Sequence[Mapping[str, str]] | Mapping[str, Any]],
        *,
        chat: bool = False,
        system: str | None = None,
        parallel: int | None = None,
        **options: Unpack[ReplyOptions],
    ) -> Iterator[Completion]:
        """The replies to many prompts, in their order.

        A prompt is a text, token ids, messages, or a dictionary with an `id`, one of `prompt`, `ids` and `messages`,
        and options of its own. `options` are those of `generate` and apply to all prompts. With `chat`, a text is a
        message of the user; `system` is put before messages that have no system message. Prompt number i has the seed
        `seed` + i. A prompt that cannot be run gives a completion with an `error`.

        `parallel` prompts share each call of the model, which reads its weights once for all of them. None chooses the
        number by memory and speed. A file that does not have the form for it runs its prompts one at a time.
        """
        from .many import Many
        from .request import check_options, parse

        if (first := options.pop("seed", None)) is None:
            first = random_seed()
        check_options({**options, "seed": first})
        if parallel is not None and parallel < 1:
            raise UsageError(f"parallel is {parallel}, expected at least 1, or None")
        requests = [parse(prompt, i) for i, prompt in enumerate(prompts)]
        many = Many(self, requests, options, seed=first, chat=chat, system=system, parallel=parallel)
        return many.in_order()

    def batches(self, sequences: int, extra: int = 0) -> tuple[Batch, ...]:
        """The model of at least this number of sequences, and `extra` more in each batch; kept for the next call."""
        if sum(batch.sequences - extra for batch in self._batches) < sequences:
            self._batches = ()
            self._batches = open_batches(self.model, sequences, extra, self.session.progress)
        return self._batches

    def drop_batches(self) -> None:
        """Forget the batches: a device failed."""
        self._batches = ()

    def begin(self, run: BatchRun) -> None:
        """Note that this run uses the batches."""
        self.end_unfinished()
        self._run = run

    def end(self, run: BatchRun) -> None:
        """Note that this run uses the batches no more."""
        if self._run is run:
            self._run = None

    def end_unfinished(self) -> None:
        """Stop a run that was not read to its end: another one would use the same caches."""
        if self._run:
            self._run.stop()
            self._run = None

    def score(self, text: str | Sequence[int]) -> list[float]:
        """The log-probability (natural logarithm) of each token after those before it. The first is 0.0.

        A file that returns only the logits of a call's last token is run token by token.
        """
        ids = self.tokenizer.encode_prompt(text) if isinstance(text, str) else list(text)
        session, out = self.session, [0.0][: len(ids)]
        if len(ids) < 2:
            return out
        self._end_last()
        session.interface.check(ids)
        session.rewind(0)
        session.calls = []
        outputs, tokens = session.model.outputs[0].dims, session.interface.largest
        at_once = session.chunk if outputs[-2] == tokens else 1
        for at in range(0, len(ids) - 1, at_once):
            part = ids[at : min(at + at_once, len(ids) - 1)]
            rows = session.rows(part, "prefill").astype(np.float64)
            best = rows.max(axis=1)
            sums = best + np.log(np.exp(rows - best[:, None]).sum(axis=1))
            out += (rows[range(len(part)), ids[at + 1 : at + 1 + len(part)]] - sums).tolist()
        return out

    def trace(self) -> Trace:
        """What `--trace-resize` shows: for each call, what changed its shape. Generates the last reply once more."""
        reply = self._finished_reply()
        tracer, traces = Tracer(self.model, reply.calls[-1].shapes), list[CallTrace]()
        self._repeat(reply, lambda call: traces.append(tracer.trace(replace(call, index=len(traces)))))
        return Trace(traces)

    def timings(self, by: str = "op") -> Timings:
        """What `--timings` shows: GPU time by op, dispatch or layer. Generates the last reply once more."""
        reply = self._finished_reply()
        timings = Timings(self.model, by)
        self._repeat(reply, timings, timed=True)
        return timings

    def save(self, path: str | os.PathLike[str], *, tokens: int | None = None, extra: Any = None) -> None:
        """Write the KV cache to a file: the first `tokens` tokens of it, or all. `extra` is any JSON value."""
        self._end_last()
        known = self.session.position
        if not 0 < (count := known if tokens is None else tokens) <= known:
            raise UsageError(f"the KV cache has {known} tokens, {count} cannot be saved")
        parts = self._parts if tokens is None else []
        prompt_cache.save(path, self.session, self._digest(), count, parts, extra)

    def load(self, path: str | os.PathLike[str]) -> Any:
        """Fill the KV cache from a file that `save` wrote; returns its `extra`.

        FormatError if it is damaged, or that of another model or KV type. Then the KV cache is as before.
        """
        self._end_last()
        self._parts, extra = prompt_cache.load(path, self.session, self._digest())
        return extra

    def reset(self) -> None:
        """Forget everything: empty the KV cache."""
        self._end_last()
        self._parts = []
        self.session.rewind(0)
        self.model.reset()

    def _end_last(self) -> None:
        """End a reply that was not read to its end, because the KV cache will no longer be its own."""
        if self._last:
            self._last.stop()
            if self._is_chat:
                self._parts.append((self.tokenizer.decode(self._last.ids), self._last.ids))
        self._last, self._is_chat = None, False

    def _reply(self, ids: Sequence[int], options: Options, prefix: int = 0) -> Reply:
        self.session.calls = []
        eos = frozenset[int]() if options.ignore_eos else self.eos_ids()
        stream = TokenStream(self.session, ids, options.sampler(), limit=options.limit(), eos=eos, prefix=prefix)
        tokenizer = None if isinstance(self._tokenizer, RunError) else self._tokenizer
        self._last = Reply(stream, tokenizer, options.stops())
        return self._last

    def eos_ids(self) -> frozenset[int]:
        """The end-of-text ids in the metadata of the file and beside the tokenizer."""
        ids: set[int] = set()
        for name in ("get_eos_ids", "get_eos_id"):
            value = self.model.metadata.get(name)
            ids |= {i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)}
        return frozenset(ids) | (frozenset() if isinstance(self._tokenizer, RunError) else self._tokenizer.eos_ids())

    def _ids_of_chat(self, text: str) -> list[int]:
        """The tokens of a chat. Replies keep the tokens that were generated, which their text might not give again."""
        at, count, ids = 0, 0, list[int]()
        for part, tokens in self._parts:
            if not text.startswith(part, at):
                break
            at, count, ids = at + len(part), count + 1, ids + tokens
        rest = self.tokenizer.encode_plain(text[at:])
        self._parts = [*self._parts[:count], (text[at:], rest)]
        return ids + rest

    def _after_common_prefix(self, ids: Sequence[int]) -> list[int]:
        """Rewind to the longest prefix that these tokens share with the KV cache; returns the tokens after it."""
        pairs = zip(ids, self.session.ids, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), self.session.position))
        same = max(min(same, len(ids) - 1), 0)  # the last token is always run, because its logits are needed
        self.session.rewind(same)
        return list(ids[same:])

    def _finished_reply(self) -> Reply:
        if self._last is None or not self._last.ids:
            raise UsageError("there is no reply to look at: generate one first")
        return self._last

    def _repeat(self, reply: Reply, observer: Observer, *, timed: bool = False) -> None:
        """Generate a reply again, which gives the same ids and the same KV cache, while this observer looks on."""
        with self._observed(observer, timed):
            for _ in reply.again():
                pass

    @contextmanager
    def _observed(self, observer: Observer, timed: bool) -> Iterator[None]:
        session = self.session
        before = session.observers, session.timed, session.calls
        session.observers, session.timed, session.calls = [observer], timed, []
        try:
            yield
        finally:
            session.observers, session.timed, session.calls = before


def _no_progress(what: str, done: int, total: int) -> None:
    """What `progress` is by default."""


def _template(tokenizer: Tokenizer | RunError, given: str | os.PathLike[str] | None) -> Template:
    if isinstance(tokenizer, RunError):
        raise tokenizer
    return find_template(tokenizer, os.fspath(given) if given is not None else None)
