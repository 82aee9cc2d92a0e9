"""`--prompt-cache FILE`: the KV cache of a prompt, kept from one process to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..errors import FormatError
from ..llm.language_model import LLM

STEP = 32  # a prefix is a multiple of this number of tokens, so that the calls after it are the same each time


class PromptCache:
    """A file with a KV cache. One that cannot be used is ignored, with a line, and written anew."""

    def __init__(self, llm: LLM, path: str, warn: Callable[[str], None]) -> None:
        self.llm, self.path = llm, path
        self._known: list[int] = []
        self._to_save = 0
        if os.path.exists(path):
            try:
                llm.load(path)
                self._known = list(llm.session.ids)
            except FormatError as error:
                warn(f"the prompt cache is ignored: {error}")

    def prefix(self, ids: Sequence[int]) -> int:
        """How many tokens of the prompt to prefill apart from the rest: those that the file has, or will have."""
        most = (len(ids) - 1) // STEP * STEP
        pairs = zip(ids, self._known, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(self._known)))
        same = min(same // STEP * STEP, most)
        self._to_save = most if most > same == len(self._known) else 0
        return same or most

    def save(self) -> None:
        """Write the prompt, if it goes on where the file ends, or the file could not be used."""
        if 0 < self._to_save <= self.llm.session.position:
            self.llm.save(self.path, tokens=self._to_save)

    def save_chat(self) -> None:
        """Write the chat, if the file could not be used."""
        if not self._known and self.llm.session.position:
            self.llm.save(self.path)
