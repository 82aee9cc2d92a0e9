"""A text cut into windows as llama-perplexity cuts it, and the log-probabilities of a model for each window."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FormatError, ShapeError, UsageError
from ..llm.tokenizer import Tokenizer
from ..shapes import Array

if TYPE_CHECKING:
    from ..runtime.model import Model


@dataclass(frozen=True, slots=True)
class TextWindow:
    """Tokens that are run from position 0 on. The tokens after position `first` are scored.

    The last token is predicted but not run.
    """

    start: int  # of the window in the text, in tokens
    ids: tuple[int, ...]
    first: int

    @property
    def targets(self) -> Array:
        """The tokens that are scored."""
        return np.array(self.ids[self.first + 1 :])


def read_text(path: Path) -> str:
    """The text of a UTF-8 file."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the text: {str(error.strerror).lower()} ({path})") from None
    except UnicodeDecodeError:
        raise FormatError(f"not UTF-8 text ({path})") from None


def tokens_of(text: str, tokenizer: Tokenizer) -> tuple[list[int], int | None]:
    """The tokens of a text, and the one that the tokenizer puts before every text, if it does."""
    ids, plain = tokenizer.encode_prompt(text), tokenizer.encode_plain(text)
    return ids, ids[0] if ids[:1] + plain == ids else None


def cut(ids: Sequence[int], bos: int | None, context: int, stride: int | None = None) -> list[TextWindow]:
    """Windows of `context` tokens, one after the other; the second half of each is scored.

    With a stride, a window has half a stride more, starts `stride` tokens after the one before it, and its last
    `stride` tokens are scored. Every window begins with BOS if the tokenizer adds it.
    """
    if len(ids) < 2 * context:
        raise UsageError(f"the text has {len(ids)} tokens, a context of {context} needs {2 * context}", hint="--ctx 64")
    size = context + stride // 2 if stride else context
    first = size - stride - 1 if stride else size // 2
    starts = range(0, len(ids) - size, stride) if stride else range(0, len(ids) - size + 1, size)
    windows = []
    for start in starts:
        tokens = tuple(ids[start : start + size])
        windows.append(TextWindow(start, (bos, *tokens[1:]) if bos is not None else tokens, first))
    return windows


class Scorer:
    """A model that returns all rows, and the time that its calls took."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.wall_ns = 0
        self.most = model.inputs[0].dims[1]
        self.rows = model.outputs[0].dims[-2]  # of logits that one call returns at most
        self.is_exact = model.inputs[0].dynamism == "static"

    def log_probs(self, window: TextWindow) -> Array:
        """[targets, vocabulary] in float32: the logarithms of the probabilities of every token after `first`."""
        ids, parts = window.ids[:-1], []
        start = time.perf_counter_ns()
        for at, end in self._calls(len(ids), window.first):
            out = self.model.run([np.array([ids[at:end]]), np.array([at])])[0]
            if end > window.first:
                parts.append(out.reshape(-1, out.shape[-1])[-(end - max(at, window.first)) :])
        self.wall_ns += time.perf_counter_ns() - start
        logits = np.concatenate(parts)
        if not np.isfinite(logits).all():
            raise ShapeError(f"the logits of the window at token {window.start} are not finite")
        return log_softmax(logits)

    def likelihood(self, before: Sequence[int], after: Sequence[int], capacity: int) -> tuple[float, bool]:
        """log p of the tokens `after` these `before`, and whether each of them was the likeliest.

        Of tokens that do not fit the context, the first ones are not run.
        """
        ids = (*before, *after)[-(capacity + 1) :]
        window = TextWindow(0, ids, max(0, len(ids) - len(after) - 1))
        log_probs, targets = self.log_probs(window), window.targets
        total = log_probs[np.arange(len(targets)), targets].sum(dtype=np.float64)
        return float(total), bool((log_probs.argmax(-1) == targets).all())

    def _calls(self, count: int, first: int) -> Iterator[tuple[int, int]]:
        """(start, end) of calls that return every row from `first` on: as few as the model allows."""
        if self.is_exact and count % self.most:
            raise UsageError(f"the model takes exactly {self.most} tokens per call", hint=f"--ctx {self.most + 1}")
        at = 0
        while at < count:
            end = min(at + self.most, count)
            if end > first:
                end = min(end, max(at, first) + self.rows)
            yield at, end
            at = end


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    totals = np.exp(shifted).sum(-1, keepdims=True, dtype=np.float64)
    out: Array = shifted - np.log(totals).astype(np.float32)
    return out
