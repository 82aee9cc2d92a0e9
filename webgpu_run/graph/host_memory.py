"""How much memory this process can still get: what the system has free, within the limits set for the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def available(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Bytes that this process can still allocate, None if the system tells nothing.

    The least of the system's available memory, the rest of `ulimit -v`, and the rest of every control group that the
    process is in (version 1 or 2).
    """
    rests = [_system(proc), _address_space(proc), *_control_groups(proc, cgroups)]
    known = [max(0, rest) for rest in rests if rest is not None]
    return min(known, default=None)


def _system(proc: Path) -> int | None:
    field = _fields(proc / "meminfo").get("MemAvailable:")
    if field is not None:
        return field * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _address_space(proc: Path) -> int | None:
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int((proc / "self" / "statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError, ValueError, IndexError):
        return None
    return None if limit == resource.RLIM_INFINITY else limit - used


def _control_groups(proc: Path, cgroups: Path) -> Iterator[int | None]:
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            yield from _group(cgroups, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _group(cgroups / "memory", path, *names)


def _group(root: Path, path: str, limit_name: str, used_name: str, cache_field: str) -> Iterator[int | None]:
    """The rest of a group and of each group that contains it; in a container only the outermost one may be visible."""
    group = root / path.strip("/")
    while group.is_relative_to(root):
        limit, used = _number(group / limit_name), _number(group / used_name)
        if limit is not None and used is not None:
            cache = _fields(group / "memory.stat").get(cache_field, 0)  # counted as used, but given back under pressure
            yield limit - used + cache
        group = group.parent


def _number(path: Path) -> int | None:
    """The number in a file; None if there is no file, or no limit ("max")."""
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        rows = [line.split() for line in path.read_text("ascii").splitlines()]
    except (OSError, ValueError):
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdigit()}
