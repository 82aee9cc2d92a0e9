"""Limits of memory that were set for the process: a model that does not fit them is refused before it is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from webgpu_run.graph.host_memory import available

GB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    """Files as the kernel shows them under /proc and /sys/fs/cgroup."""
    text = {"proc/meminfo": f"MemTotal: {99 * GB // 1024} kB\nMemAvailable: {64 * GB // 1024} kB\n", **files}
    for name, content in text.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root / "proc", root / "cgroup"


def test_without_limits_the_system_decides(tmp_path: Path) -> None:
    assert available(*tree(tmp_path, {})) == 64 * GB


@pytest.mark.parametrize("level", ["a/b", "a", ""])
def test_control_group_version_2(tmp_path: Path, level: str) -> None:
    """The limit may be that of a group around this one; file cache is not counted as used."""
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        "cgroup/a/b/memory.max": "max\n",
        "cgroup/a/b/memory.current": "1\n",
        f"cgroup/{level}/memory.max": f"{3 * GB}\n",
        f"cgroup/{level}/memory.current": f"{2 * GB}\n",
        f"cgroup/{level}/memory.stat": f"anon 5\ninactive_file {GB // 2}\n",
    }
    assert available(*tree(tmp_path, files)) == 3 * GB - 2 * GB + GB // 2


def test_control_group_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n",
        "cgroup/memory/x/memory.limit_in_bytes": f"{2 * GB}\n",
        "cgroup/memory/x/memory.usage_in_bytes": f"{GB}\n",
        "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "cgroup/memory/memory.usage_in_bytes": f"{GB}\n",
    }
    assert available(*tree(tmp_path, files)) == GB


def test_a_group_that_is_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "cgroup/memory.max": "1000\n", "cgroup/memory.current": "2000\n"}
    assert available(*tree(tmp_path, files)) == 0


def test_files_that_make_no_sense_are_ignored(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "\nx\n0::/a\n", "cgroup/a/memory.max": "many\n", "cgroup/a/memory.current": ""}
    assert available(*tree(tmp_path, files)) == 64 * GB


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v is ignored elsewhere")
def test_a_model_over_ulimit_v_is_refused_with_the_numbers() -> None:
    """It used to be loaded until an allocation failed, which aborts the process."""
    code = """
import resource
from webgpu_run.debug.single_op import Builder
from webgpu_run.errors import ShapeError
from webgpu_run.graph import budget
from webgpu_run.graph.planner import Engine
b = Builder()
b.output(*(b.call("aten.sigmoid.default", b.input((1, 1 << 24))) for _ in range(8)))
engine = Engine(b.graph(), b.limits)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
try:
    budget.check([engine], b.limits, 1 << 40)
except ShapeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("the model needs 1,07"), done.stdout
    left = int(done.stdout.split(", ")[-1].split()[0].replace(",", ""))
    assert 200 << 20 < left <= 256 << 20
