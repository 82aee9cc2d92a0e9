"""A reply as text, which appears while it is generated."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator

from ..runtime.calls import ModelCall
from .session import TokenStream
from .stats import ReplyStats
from .tokenizer import StopStrings, TextStream, Tokenizer


class Reply:
    """The reply to a prompt. Iterate over it for pieces of text as they are generated.

    Nothing runs before the first piece is asked for. `text`, `ids`, `reason` and `stats` generate the rest of the reply
    first, if there is one. Without a tokenizer the text is a list of ids.
    """

    def __init__(self, stream: TokenStream, tokenizer: Tokenizer | None, stops: Iterable[str] = ()) -> None:
        self._stream, self._tokenizer = stream, tokenizer
        self._stops = StopStrings(stops)
        self._pieces: list[str] = []
        self._source = self._generate()
        self._first_ns: int | None = None
        self._calls = stream.session.calls

    @property
    def text(self) -> str:
        """The whole reply, up to the end-of-text token or the stop string."""
        self.finish()
        return "".join(self._pieces)

    @property
    def ids(self) -> list[int]:
        """The token ids of the reply, without the end-of-text token."""
        self.finish()
        return list(self._stream.ids)

    @property
    def reason(self) -> str:
        """Why the reply ended: eos, stop (a stop string), length, context (it is full) or interrupt."""
        self.finish()
        return self._stream.reason

    @property
    def stats(self) -> ReplyStats:
        """Tokens and times of prefill and decode."""
        self.finish()
        return ReplyStats.of(self._calls, self._first_ns)

    @property
    def seed(self) -> int:
        """The seed. With it, `generate` gives the same reply again."""
        return self._stream.sampler.seed

    @property
    def is_greedy(self) -> bool:
        """True if the likeliest token was always taken, so that the seed had no effect."""
        return self._stream.sampler.greedy

    @property
    def calls(self) -> list[ModelCall]:
        """The calls of the model, in order."""
        return self._calls

    @property
    def prompt_ids(self) -> list[int]:
        """The tokens that were run before the reply. In a chat these are the tokens that the KV cache did not have."""
        return list(self._stream.prompt)

    def finish(self) -> None:
        """Generate the rest of the reply."""
        for piece in self._source:
            self._pieces.append(piece)

    def stop(self) -> None:
        """End the reply here. Nothing more is generated."""
        self._source.close()
        self._stream.reason = self._stream.reason or "interrupt"

    def again(self) -> TokenStream:
        """The same reply once more, as ids. The session must not have run anything else since."""
        stream = self._stream
        stream.session.rewind(stream.start)
        limit = stream.limit if stream.reason == "eos" else len(stream.ids)
        return TokenStream(
            stream.session, stream.prompt, stream.sampler, limit=limit, eos=stream.eos, prefix=stream.prefix
        )

    def __iter__(self) -> Iterator[str]:
        at = 0
        while True:
            if at == len(self._pieces):
                piece = next(self._source, None)
                if piece is None:
                    return
                self._pieces.append(piece)
            yield self._pieces[at]
            at += 1

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        state = self._stream.reason or ("running" if self._stream.ids else "not started")
        return f"<Reply {''.join(self._pieces)!r}, {len(self._stream.ids)} tokens, {state}>"

    def _generate(self) -> Generator[str]:
        """Pieces of text that are not empty. An exception ends the reply where it is, and the model stays usable."""
        stream, stops = self._stream, self._stops
        text = TextStream(self._tokenizer.decode) if self._tokenizer else None
        start = time.perf_counter_ns()
        try:
            for token in stream:
                if self._first_ns is None:
                    self._first_ns = time.perf_counter_ns() - start
                decoded = text.push(token) if text else f"{' ' * (len(stream.ids) > 1)}{token}"
                if piece := stops.push(decoded):
                    yield piece
                if stops.found:
                    stream.stop()
            if not stops.found:
                rest = stops.push(text.finish()) if text else ""
                if rest := rest + stops.finish():
                    yield rest
        except KeyboardInterrupt as interrupt:
            # Where in the engine it happened does not matter, and a notebook takes seconds to show all those frames.
            raise interrupt.with_traceback(None) from None
        finally:
            stream.reason = stream.reason or "interrupt"
