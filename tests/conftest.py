"""Fixtures that every test file shares, the markers `adapter` and `process`, and the selection of `make quick`.

Nobody writes these two markers. A test has them when its code, a helper that it calls or a fixture that it takes opens
an adapter or starts a process.
"""

from __future__ import annotations

import inspect
import signal
import subprocess
import zlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from webgpu_run.gpu.device import Device, open_device
from webgpu_run.runtime import open as opening
from webgpu_run.runtime.model import Model

OPENERS = (open_device, opening.open_device, opening.open_model, opening.load, Model)
MARKS: dict[object, str] = {**dict.fromkeys(OPENERS, "adapter"), subprocess: "process"}
SAMPLED = {"adapter", "process", "campaign"}
QUICK_SHARE = 40  # `--quick` runs one of this many tests with such a marker


@pytest.fixture(scope="session")
def device() -> Device:
    """One device for the whole session: its pipelines are compiled once."""
    return open_device()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="a sample of the tests that need an adapter or a process, and all others"
    )


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and their children, ignore it
    config.addinivalue_line("markers", "adapter: opens a GPU adapter (set by conftest.py)")
    config.addinivalue_line("markers", "process: starts a process (set by conftest.py)")
    config.addinivalue_line("markers", "campaign: one of many parts that do the same with other random data")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    found: dict[object, set[str]] = {}
    for item in items:
        for function in functions_of(item):
            if function not in found:
                found[function] = marks(function, set())
            for mark in found[function]:
                item.add_marker(mark)
    if config.getoption("--quick"):
        chosen = [item for item in items if is_quick(item)]
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = chosen


def is_quick(item: pytest.Item) -> bool:
    """Whether `--quick` runs a test. The sample depends on nothing but the test's name."""
    is_sampled = any(item.get_closest_marker(mark) for mark in SAMPLED)
    return not is_sampled or zlib.crc32(item.nodeid.encode()) % QUICK_SHARE == 0


def functions_of(item: pytest.Item) -> Iterator[Callable[..., Any]]:
    """The test's own function and those of its fixtures."""
    if isinstance(item, pytest.Function):
        yield inspect.unwrap(item.function)
        for definitions in item._fixtureinfo.name2fixturedefs.values():
            yield from (definition.func for definition in definitions)


def marks(function: Callable[..., Any], seen: set[object]) -> set[str]:
    """The markers of what a function names, and of what the functions in tests/ that it names name."""
    function = inspect.unwrap(function)
    if function in seen or not isinstance(function, FunctionType):
        return set()
    seen.add(function)
    used = [*names(function.__code__)]
    modules = [m for n in used if isinstance(m := function.__globals__.get(n), ModuleType) and is_ours(m.__name__)]
    found: set[str] = set()
    for space in (function.__globals__, *map(vars, modules)):
        for value in (space[name] for name in used if name in space):
            if isinstance(value, ModuleType) or callable(value):
                found |= {MARKS[value]} if value in MARKS else set()
                if is_ours(getattr(value, "__module__", "")):
                    found |= marks(value, seen)
    return found


def is_ours(module: str) -> bool:
    return module.startswith(("helpers.", "test_"))


def names(code: CodeType) -> Iterator[str]:
    """All names that code refers to, nested functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names(constant)
