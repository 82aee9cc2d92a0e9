"""A conversation: its messages, of which the oldest are dropped when the context is full."""

from __future__ import annotations

from typing import Unpack

from ..errors import FormatError
from .language_model import LLM
from .options import ReplyOptions
from .reply import Reply
from .session import ContextFullError


class Conversation:
    """The messages so far."""

    def __init__(self, llm: LLM, system: str | None = None) -> None:
        self.llm = llm
        self.messages = [{"role": "system", "content": system}] if system else []
        self.dropped = 0  # messages removed because the context was full

    def ask(self, content: str, **options: Unpack[ReplyOptions]) -> Reply:
        """Add a question; returns the reply. `options` are those of `LLM.chat`."""
        self.messages.append({"role": "user", "content": content})
        while True:
            try:
                return self.llm.chat(self.messages, **options)
            except ContextFullError:
                first = next((i for i, m in enumerate(self.messages) if m["role"] != "system"), 0)
                if len(self.messages) - first < 3:
                    self.withdraw()
                    raise
                del self.messages[first : first + 2]  # the oldest question and its answer
                self.dropped += 2

    def answered(self, text: str) -> None:
        """Add the model's reply."""
        self.messages.append({"role": "assistant", "content": text})

    def withdraw(self) -> None:
        """Remove the last question, which got no reply."""
        del self.messages[-1]

    def save(self, path: str) -> None:
        """Write the messages and the KV cache to a file."""
        self.llm.save(path, extra=self.messages)

    def load(self, path: str) -> None:
        """Go on with a conversation that was saved. A file that is not one leaves everything as it was."""
        messages = self.llm.load(path)
        if not isinstance(messages, list):
            self.llm.reset()
            raise FormatError(f"it is not a chat ({path})")
        self.messages = messages

    def reset(self) -> None:
        """Remove all messages but the system message, and empty the KV cache."""
        self.messages = [m for m in self.messages if m["role"] == "system"]
        self.llm.reset()  # rows that a NaN got into must not survive
