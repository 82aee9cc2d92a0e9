"""Log-probabilities of a model for the windows of a text, in an .npz file, to compare other models with.

`ids` [windows, size], `first` and `vocab` say what was run. For window 0, `targets_0` has log p of the tokens of the
text, and `log_probs_0` [targets, vocabulary] 16 bits for every log p: `low_0` + `step_0` * code in each row. The
range of a row ends SPAN below its largest, so the smallest probabilities are rounded up; rows are normalised again.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..console import outfile
from ..errors import FormatError, UsageError
from ..shapes import Array
from .windows import TextWindow, log_softmax

SPAN = 32.0  # nats; llama-perplexity has 16, with which the rounded tail of a large vocabulary has 0.5 % in all
CODES = 65535


class LogitsWriter:
    """Adds windows to an open archive."""

    def __init__(self, archive: zipfile.ZipFile, path: str) -> None:
        self._archive, self._path, self._windows = archive, path, 0

    def put(self, name: str, array: Array) -> None:
        try:
            with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        except OSError as error:
            raise outfile.write_error(error, self._path) from None

    def add(self, window: TextWindow, log_probs: Array) -> None:
        """The next window."""
        top = log_probs.max(-1, keepdims=True)
        low = np.maximum(log_probs.min(-1, keepdims=True), top - SPAN)
        step = np.maximum((top - low) / CODES, np.finfo(np.float32).tiny)
        codes = np.rint((np.maximum(log_probs, low) - low) / step).clip(0, CODES)
        self.put(f"log_probs_{self._windows}", codes.astype(np.uint16))
        self.put(f"targets_{self._windows}", log_probs[np.arange(len(log_probs)), window.targets])
        self.put(f"low_{self._windows}", low.astype(np.float32))
        self.put(f"step_{self._windows}", step.astype(np.float32))
        self._windows += 1


@contextmanager
def saving(path: str, windows: Sequence[TextWindow], vocab: int) -> Iterator[LogitsWriter]:
    """A writer for these windows. The file appears, complete, when the block ends without an error."""
    with ExitStack() as closing:
        try:
            file = closing.enter_context(outfile.writing(path))
            writer = LogitsWriter(closing.enter_context(zipfile.ZipFile(file, "w")), path)
        except OSError as error:
            raise outfile.write_error(error, path) from None
        writer.put("ids", np.array([window.ids for window in windows], np.int32))
        writer.put("first", np.array(windows[0].first))
        writer.put("vocab", np.array(vocab))
        yield writer
        try:
            closing.close()
        except OSError as error:
            raise outfile.write_error(error, path) from None


class LogitsFile:
    """Saved log-probabilities, read window by window."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._arrays: Any = np.load(path, allow_pickle=False)
            self._ids, self._first = self._arrays["ids"], int(self._arrays["first"])
            self.vocab = int(self._arrays["vocab"])
        except OSError as error:
            raise FormatError(f"cannot read logits: {str(error.strerror or error).lower()} ({path})") from None
        except (ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile):
            raise FormatError(f"not a file of --save ({path})") from None

    @property
    def name(self) -> str:
        return Path(self.path).name

    def check(self, windows: Sequence[TextWindow], vocab: int) -> None:
        """Refuse logits of another text, tokenizer or context."""
        if vocab != self.vocab:
            raise UsageError(f"its logits are of {self.vocab} tokens, the model's vocabulary has {vocab} ({self.path})")
        ids = np.array([window.ids for window in windows])
        is_same = self._ids.ndim == 2 and len(self._ids) >= len(ids) and np.array_equal(self._ids[: len(ids)], ids)
        if not is_same or self._first != windows[0].first:
            raise UsageError(f"saved for another text, context, stride or number of windows ({self.path})")

    def log_probs(self, index: int, window: TextWindow) -> Array:
        """[targets, vocabulary] of the window with this index."""
        count = len(window.targets)
        try:
            names = ("log_probs", "targets", "low", "step")
            codes, targets, low, step = (self._arrays[f"{name}_{index}"] for name in names)
            if (
                codes.shape != (count, self.vocab)
                or targets.shape != (count,)
                or not low.shape == step.shape == (count, 1)
            ):
                raise ValueError
            out = log_softmax(codes.astype(np.float32) * step + low)
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile):
            raise FormatError(f"window {index} is damaged or missing ({self.path})") from None
        out[np.arange(count), window.targets] = targets
        return out
