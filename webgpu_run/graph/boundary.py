"""The boundary between graphs that others wrote and our own code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ..errors import GraphError, RunError

# What code raises that meets an id, a type or a number it did not expect.
PROVOKED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


@contextlib.contextmanager
def graph_errors(where: str | Callable[[], str]) -> Iterator[None]:
    """Turn whatever a graph provokes in our code into a GraphError that says where; the cause stays visible in it.

    A well-formed graph that ends here has found a fault of ours: `--debug` shows the cause with its traceback.
    """
    try:
        yield
    except RunError:
        raise
    except PROVOKED as error:
        raise graph_error(where if isinstance(where, str) else where(), error) from error


def graph_error(where: str, error: Exception) -> GraphError:
    reason = f"{type(error).__name__}: {error}"[:200].rstrip(": ")
    return GraphError(f"{where}: the graph cannot be run as written ({reason})")
