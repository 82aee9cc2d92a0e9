"""A tokenizer in a child process (tokenizer_worker.py), with limits of time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError

LOAD_S, ENCODE_S, DECODE_S = 20.0, 10.0, 5.0


class TokenizerProcess:
    """Serves one tokenizer file. The process starts here and ends with this object, at the latest when we end."""

    def __init__(self, path: Path, kind: str, config: Mapping[str, Any]) -> None:
        self.path, self.kind, self._config = path, kind, dict(config)
        self._process = self._start()
        answer = self._load()
        self.size: int = answer["size"]
        self.defaults: dict[str, Any] = answer["defaults"]

    def _load(self) -> dict[str, Any]:
        return self._ask({"path": str(self.path), "kind": self.kind, "config": self._config}, LOAD_S)

    def _start(self) -> subprocess.Popen[str]:
        new_group: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x200}
        self._is_lost = False  # true after an exception, such as Ctrl-C, came while an answer was awaited
        return subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("tokenizer_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a panic prints its stack there
            text=True,
            encoding="utf-8",
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
            **new_group,
        )

    def __del__(self) -> None:
        with contextlib.suppress(Exception), self._process as process:  # waits, and closes the pipes
            process.kill()

    def encode_plain(self, text: str) -> list[int]:
        ids: list[int] = self._ask({"encode": text, "prompt": False}, ENCODE_S)["ids"]
        return ids

    def encode_prompt(self, text: str) -> list[int]:
        ids: list[int] = self._ask({"encode": text, "prompt": True}, ENCODE_S)["ids"]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._ask({"decode": list(ids)}, DECODE_S)["text"]) if ids else ""

    def id_of(self, text: str) -> int | None:
        token: int | None = self._ask({"id_of": text}, DECODE_S)["id"]
        return token

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        if self._is_lost:
            self._process.communicate()
            self._process = self._start()
            self._load()
        process, line = self._process, ""
        assert process.stdin
        assert process.stdout
        timer = None if hasattr(signal, "setitimer") else threading.Timer(limit_s, process.kill)
        if timer:
            timer.start()
        try:
            process.stdin.write(json.dumps({**request, "limit_s": limit_s}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            pass  # the process has ended: there is no answer
        except BaseException:
            self._is_lost = True
            process.kill()  # its answer to this request must not be taken for the next one
            raise
        finally:
            if timer:
                timer.cancel()
        if not line:
            in_time = process.wait() != -getattr(signal, "SIGALRM", 0) and not (timer and not timer.is_alive())
            why = "ended its process" if in_time else f"did not end within {limit_s:g} s"
            raise FormatError(f"the tokenizer {why} ({self.path})")
        answer: dict[str, Any] = json.loads(line)
        if "missing" in answer:
            hint = f"pip install 'webgpu-run[{self.kind}]'"
            raise UnsupportedError(f"a {self.kind} tokenizer needs {answer['missing']} ({self.path})", hint=hint)
        if "error" in answer:
            # SentencePiece names lines of its own source.
            why = "cut short or damaged" if self.kind == "sentencepiece" else answer["error"]
            raise FormatError(f"the tokenizer is not valid: {why} ({self.path})")
        return answer
