"""Results that can be sent: `--share` writes one file about a device, and `webgpu-bench merge` reads many of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..console import outfile
from ..errors import FormatError
from ..gpu import tune
from ..gpu.device import Device
from ..gpu.roofline import Roofline
from . import host
from .tables import SCHEMA, Row, View, number, sinks

FORMAT = "webgpu-run device results"
MOST_BYTES = 64 << 20
_OF_THE_RUN = ("schema", "time", "device", "machine", "versions", "adapter_roofline")


def document(device: Device, roof: Roofline | None, rows: Sequence[Row]) -> Row:
    """Everything about the device that another machine can use: no path, no user, no host name."""
    first = rows[0]
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "time": first["time"],
        "device": host.adapter(device),
        "limits": dict(device.handle.limits),
        "machine": host.machine(),
        "versions": host.versions(),
        "tuner": tune.read(tune.cache_file()).get(tune.key_of(device.adapter)),
        "roofline": roof.as_dict() if roof else None,
        "rows": [{k: v for k, v in row.items() if k not in _OF_THE_RUN} for row in rows],
    }


def write(path: str, device: Device, roof: Roofline | None, rows: Sequence[Row]) -> None:
    """Write the file of --share."""
    outfile.write(path, (json.dumps(document(device, roof, rows), indent=1) + "\n").encode())


def read(path: str) -> Row:
    """A file that --share wrote."""
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise FormatError(f"larger than a file of --share can be ({path})")
        found = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise FormatError(f"cannot read: {error.strerror or error} ({path})") from None
    except (ValueError, RecursionError):
        raise FormatError(f"not JSON ({path})") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError(f"not written by webgpu-bench --share ({path})")
    if not isinstance(found.get("schema"), int) or found["schema"] > SCHEMA:
        raise FormatError(f"written by a newer version of webgpu-bench ({path})")
    if not isinstance(found.get("device"), dict) or not _is_rows(found.get("rows")):
        raise FormatError(f"without a device or rows ({path})")
    return found


def _is_rows(rows: Any) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, dict)
        and isinstance(row.get("model"), dict)
        and isinstance(row.get("test"), str)
        and isinstance(row.get("mean"), int | float)
        for row in rows
    )


def rows_of(shared: Row) -> list[Row]:
    """The rows of a file, each with what the file says once."""
    common = {k: shared[k] for k in _OF_THE_RUN if k in shared}
    if shared.get("roofline"):
        common["adapter_roofline"] = shared["roofline"]
    return [{**row, **common} for row in shared["rows"]]


def devices(files: Sequence[Row]) -> list[Row]:
    """One row per file and model: the device, its limits as measured, and the speed of each test."""
    made = []
    for shared in files:
        by_model: dict[str, Row] = {}
        for row in shared["rows"]:
            name = str(row["model"].get("name", "?"))
            tests = by_model.setdefault(name, {})
            tests[row["test"]] = row["mean"]
        made += [
            {
                "device": shared["device"],
                "system": _text(shared.get("machine"), "system"),
                "model": name,
                "kernels": _text(shared["device"], "profile"),
                "read_gb_s": _largest(shared.get("roofline")),
                "f32_gflop_s": _number(shared.get("roofline"), "f32_gflop_s"),
                "tests": tests,
                "version": _text(shared.get("versions"), "webgpu-run"),
                "time": shared.get("time"),
            }
            for name, tests in by_model.items()
        ]
    return sorted(made, key=lambda row: (row["model"], -max(row["tests"].values())))


def _text(fields: Any, name: str) -> str:
    return str(fields.get(name, "?")) if isinstance(fields, dict) else "?"


def _number(fields: Any, name: str) -> float | None:
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, int | float) else None


def _largest(roof: Any) -> float | None:
    """GB/s of the fastest way to read the largest working set, which no cache holds."""
    ways = roof.get("read_gb_s") if isinstance(roof, dict) else None
    if not isinstance(ways, dict):
        return None
    rates = [rates[max(rates, key=int)] for rates in ways.values() if isinstance(rates, dict) and rates]
    return max(rates, default=None)


def _cells(row: Row) -> dict[str, str]:
    return {
        "device": str(row["device"].get("name", "?")).partition(" (")[0],
        "backend": _text(row["device"], "backend"),
        "system": row["system"],
        "model": row["model"],
        "kernels": row["kernels"],
        "GB/s": number(row["read_gb_s"]),
        "GFLOP/s": number(row["f32_gflop_s"]),
        **{f"{test} t/s": number(rate) for test, rate in row["tests"].items()},
        "version": row["version"],
    }


def _view(rows: Sequence[Mapping[str, Any]]) -> View:
    """All tests of all files, in one order; a device without a test has a dash."""
    tests = list(dict.fromkeys(test for row in rows for test in row["tests"]))

    def cells(row: Row) -> dict[str, str]:
        return _cells({**row, "tests": {test: row["tests"].get(test) for test in tests}})

    paths = ("device.name", "device.backend", "device.driver", "system", "model", "kernels", "read_gb_s", "f32_gflop_s")
    return View(
        cells, (*paths, *(f"tests.{test}" for test in tests), "version", "time"), ("system", "kernels", "version")
    )


def run_merge(*, files: tuple[str, ...], report: str | None, form: str | None, out: str | None, quiet: bool) -> int:
    """One table of all devices, and with `report` one page."""
    for target, flag in ((out, "--out"), (report, "--report")):
        if target:
            outfile.check_target(target, files, flag)
    shared = [read(path) for path in files]
    rows = devices(shared)
    with sinks(form, out, _view(rows), rows) as table:
        table.show(rows)
    if report:
        from .page import page

        try:
            drawn = page([row for one in shared for row in rows_of(one)])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise FormatError("a file has not all that the page shows (--report)") from None
        outfile.write(report, drawn.encode())
    return 0
