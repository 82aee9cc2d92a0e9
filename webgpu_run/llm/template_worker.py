"""A process that renders chat templates.

A chat template is a program that someone else wrote. It runs in jinja2's sandbox, and in a process of its own with a
memory limit, which the caller can kill.

Each line of stdin is a JSON object (`template`, `messages` and other variables of the template). Each line of stdout
is a JSON object with `text` or `error`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import datetime
from typing import Any, NoReturn

MEMORY = 512 << 20
LONGEST = 4 << 20  # characters of a rendered conversation, at most


def render(source: str, variables: dict[str, Any]) -> str:
    """Render a conversation, with the environment that Hugging Face's chat templates expect."""
    from jinja2.exceptions import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def tojson(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    parts, size = [], 0
    for part in environment.from_string(source).generate(**variables):
        parts.append(part)
        size += len(part)
        if size > LONGEST:
            raise TemplateError(f"it wrote more than {LONGEST:,} characters")
    return "".join(parts)


def _answer(line: str) -> dict[str, str]:
    try:
        request = json.loads(line)
        return {"text": render(request.pop("template"), request)}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY >> 20} MB"}
    except Exception as error:
        return {"error": f"{error or type(error).__name__}"}


def main() -> None:
    """Answer requests until stdin ends."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
