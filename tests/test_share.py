"""webgpu-bench tune, --share and merge: what someone with a GPU can send, and what becomes of it."""

from __future__ import annotations

import csv
import getpass
import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.command import HERE, Result, execute

MODEL = HERE / "fixtures" / "tiny_dyn.pte"
TWO = ("-p", "1,4", "-n", "0", "-r", "2", "-w", "0", "-q")


def bench(*args: str | Path, **env: str) -> Result:
    return execute(sys.executable, "-m", "webgpu_run.cli.bench", *args, env=env)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("private") / "shared.json"
    result = bench(MODEL, *TWO, "--share", path)
    assert result.code == 0, result.err
    return path


def test_a_file_to_send(shared: Path) -> None:
    data = json.loads(shared.read_text())
    assert data["limits"]["max-compute-invocations-per-workgroup"] >= 256
    assert data["roofline"]["f32_gflop_s"] > 0
    assert data["tuner"]["profile"] in data["tuner"]["ms"]
    columns = len(data["tuner"]["of"])  # a profile that lost after the first has no time of the second
    assert {columns} <= {len(ms) for ms in data["tuner"]["ms"].values()} <= {1, columns}
    assert len(data["tuner"]["ms"][data["tuner"]["profile"]]) == columns
    assert [row["test"] for row in data["rows"]] == ["pp1", "pp4"]
    assert all(row["ops"] for row in data["rows"])


def test_nothing_private(shared: Path) -> None:
    text = shared.read_text()
    for name in (str(Path.home()), str(shared.parent), str(HERE.parent), platform.node(), getpass.getuser()):
        assert not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)


def other(shared: Path, path: Path, **changes: Any) -> Path:
    """The file as another device would have written it."""
    path.write_text(json.dumps({**json.loads(shared.read_text()), **changes}))
    return path


def test_devices_in_one_table(shared: Path, tmp_path: Path) -> None:
    data = json.loads(shared.read_text())
    rows = [{**row, "mean": 100 * row["mean"]} for row in data["rows"][:1]]
    faster = other(shared, tmp_path / "b.json", device={**data["device"], "name": "Fast GPU"}, rows=rows, roofline=None)
    page = tmp_path / "all.html"
    result = bench("merge", shared, faster, "-o", "csv", "--report", page)
    assert result.code == 0, result.err
    first, second = csv.DictReader(result.out.splitlines())
    assert first["device_name"] == "Fast GPU"
    assert float(first["tests_pp1"]) == pytest.approx(100 * data["rows"][0]["mean"])
    assert (first["tests_pp4"], first["read_gb_s"]) == ("", "")
    assert (second["device_name"], second["time"]) == (data["device"]["name"], data["time"])
    _, *lines = bench("merge", shared, faster).out.splitlines()
    assert [line.split()[0] for line in lines] == ["Fast", data["device"]["name"].split()[0]]
    text = page.read_text()
    for name in ("Fast GPU", data["device"]["name"]):
        assert f"<h2>Machine · {name}</h2>" in text
    assert "Fast GPU Vulkan, depth 0" in text or "Fast GPU, depth 0" in text
    bare = other(shared, tmp_path / "c.json", machine=None)
    refused = bench("merge", bare, "--report", tmp_path / "no.html")
    assert (refused.code, len(refused.err.splitlines())) == (3, 1)
    assert "not all that the page shows" in refused.err
    assert not (tmp_path / "no.html").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "not JSON"),
        ("{}", "not written by webgpu-bench --share"),
        ({"schema": 10_000}, "written by a newer version"),
        ({"schema": "3"}, "written by a newer version"),
        ({"rows": [{"test": "pp1"}]}, "without a device or rows"),
        ({"device": None}, "without a device or rows"),
        ({"roofline": 3, "versions": [], "machine": None}, None),
        (None, "cannot read"),
    ],
)
def test_other_files(shared: Path, tmp_path: Path, text: str | dict[str, Any] | None, message: str | None) -> None:
    path = tmp_path / "x.json"
    if isinstance(text, dict):
        other(shared, path, **text)
    elif text:
        path.write_text(text)
    result = bench("merge", path)
    if message is None:
        assert (result.code, result.err) == (0, "")
        return
    assert (result.code, result.out) == (3, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_candidates_and_their_times(tmp_path: Path) -> None:
    result = bench("tune", "-o", "jsonl", "-q", XDG_CACHE_HOME=str(tmp_path))
    assert result.code == 0, result.err
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert len({row["profile"] for row in rows}) > 1
    assert len({row["profile"] for row in rows if row["chosen"]}) == 1
    assert all(len(row["samples"]) == 10 and row["mean"] > 0 for row in rows)
    (entry,) = json.loads((tmp_path / "webgpu-run" / "tune.json").read_text()).values()
    assert [entry["profile"]] == list({row["profile"] for row in rows if row["chosen"]})
