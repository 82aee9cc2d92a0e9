"""The process that renders chat templates: a template is a program from elsewhere, so it runs in jinja2's sandbox, in a
process of its own with little memory, which the caller can end.

One JSON object a line comes in (`template`, `messages`, its other variables), one goes out (`text` or `error`).
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import datetime
from typing import Any, NoReturn

MEMORY = 512 << 20
LONGEST = 4 << 20  # characters of a rendered conversation


def render(source: str, variables: dict[str, Any]) -> str:
    """The text of a conversation, as chat templates written for Hugging Face's library expect it."""
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
    text, size = [], 0
    for part in environment.from_string(source).generate(**variables):
        text.append(part)
        size += len(part)
        if size > LONGEST:
            raise TemplateError(f"it wrote more than {LONGEST:,} characters")
    return "".join(text)


def _answer(line: str) -> dict[str, str]:
    try:
        request = json.loads(line)
        return {"text": render(request.pop("template"), request)}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY >> 20} MB"}
    except Exception as error:
        return {"error": f"{error or type(error).__name__}"}


def main() -> None:
    """Answer until stdin ends."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
