"""`--report`: one self-contained HTML page of a benchmark, with inline SVG and CSS, no script and no network."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence

from ..console.terminal import plural
from .rows import ATTENTION, GPU_NOTE
from .svg import Bar, Point, Series, bars, lines
from .tables import Row, bytes_text, number, params_text
from .views import load_cells, model_cells

SHOWN_OPS = 7
_CSS = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1e21;--dim:#667;--line:#e3e5e9;--card:#f7f8fa;
--c0:#2563a8;--c1:#d97706;--c2:#2f8f5b;--c3:#b0413e;--c4:#7c5cbf;--c5:#0f8b8d;--c6:#a3761d;--c7:#8a8f98}
@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e6e8eb;--dim:#9aa3ad;--line:#2c3036;--card:#1c1f24;
--c0:#6aa6e8;--c1:#f0a64b;--c2:#62c48f;--c3:#e57b77;--c4:#a98ff0;--c5:#4cc3c4;--c6:#d2a64f;--c7:#9aa3ad}}
body{margin:0 auto;padding:28px 24px 48px;max-width:1200px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,"Segoe UI",Helvetica,Arial,sans-serif}
h1{font-size:24px;margin:0 0 2px}h2{font-size:16px;margin:0 0 8px}p{margin:0 0 8px}.dim{color:var(--dim)}
.card .dim{font-size:13px;margin:8px 0 0}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));gap:16px;margin:20px 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px}
svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--fg)}
svg .label{fill:var(--dim)}svg .grid{stroke:var(--line)}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12.5px;margin-top:6px}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13.5px;width:100%}
th,td{padding:5px 9px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--dim);font-weight:600}td:first-child,th:first-child{text-align:left}
.warn{border-left:3px solid var(--c1);padding-left:10px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 16px;margin:0;font-size:13.5px}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
"""


def page(rows: Sequence[Row]) -> str:
    """The page for the rows of a run, or of several devices: one model, or several that alternated."""
    names, adapters = (list(dict.fromkeys(r[of]["name"] for r in rows)) for of in ("model", "device"))
    devices = list({_device(r): r for r in reversed(rows)}.values())[::-1]
    sizes = dict.fromkeys(
        (f"{r['model']['name']} " if len(names) > 1 else "")
        + f"{bytes_text(r['model'].get('bytes'))} · {params_text(r['model'].get('params'))} parameters"
        for r in rows
    )
    figures = [
        ("Prefill: tokens/s by length", _prefill(rows)),
        ("Decode: tokens/s by depth of the KV cache", _decode(rows)),
        ("Prompt and reply: tokens/s", _both(rows)),
        ("Prefill: time by length", _growth(rows, "prefill")),
        ("Decode: time of a token by depth of the KV cache", _growth(rows, "decode")),
        ("GPU time by op", _ops(rows)),
        ("Share of the roofline", _roofline(rows)),
    ]
    of = {_device(r): f" · {html.escape(r['device']['name'])}" if len(devices) > 1 else "" for r in devices}
    machines = "".join(
        f'<div class="card"><h2>Machine{of[_device(r)]}</h2>{_facts(r)}</div>{_adapter(r, of[_device(r)])}'
        for r in devices
    )
    below = f"""<div class="card wide"><h2>Rows</h2>{_table(rows, model_cells)}
<p class="dim">Median, p90 and max are per prefill (pp) or from one delivery of tokens to the next (tg), burst is the
number of tokens per delivery, and all other times are per prefill or per token.
GPU ms: {html.escape(GPU_NOTE)}.{_above(rows)}</p></div>
<div class="plots">{machines}</div>"""
    return _whole(f"{', '.join(names)} on {', '.join(adapters)}", [*sizes, _settings(rows)], figures, below, rows)


def load_page(rows: Sequence[Row]) -> str:
    """The page of `webgpu-bench load`: time and memory by file size."""
    device = rows[0]["device"]

    def series(name: str, *path: str, unit: float = 1.0) -> Series:
        return Series(name, tuple(Point(_mib(row), _at(row, path) / unit) for row in rows if _at(row, path)))

    load = Series("load", tuple(Point(_mib(r), r["mean"] / 1e3, *(x / 1e3 for x in r["ci95"] or ())) for r in rows))
    times = [load, series("first token", "first_ms", unit=1e3)]
    names = (("process, peak", "peak_rss_bytes"), ("process, before", "base_rss_bytes"), ("GPU", "gpu_bytes"))
    memory = [
        *(series(name, key, unit=1 << 20) for name, key in names),
        series("the file", "model", "bytes", unit=1 << 20),
    ]
    figures = (
        _one_load(rows[0])
        if len(rows) == 1
        else [
            ("Time to load", lines([s for s in times if s.points], "MiB of the file", "s", log="xy")),
            ("Memory", lines([s for s in memory if s.points], "MiB of the file", "MiB", log="xy")),
        ]
    )
    inside = " On a software adapter, GPU memory is part of the process." if device["kind"] == "CPU" else ""
    below = f"""<div class="card wide"><h2>Rows</h2>{_table(rows, load_cells)}
<p class="dim">Each load is a new process.{inside}</p></div>
<div class="plots"><div class="card"><h2>Machine</h2>{_list(_host(rows[0]))}</div></div>"""
    return _whole(f"Loading on {device['name']}", [plural(len(rows), "file")], figures, below, rows)


def _one_load(row: Row) -> list[tuple[str, str]]:
    """Where the time of every load went, and the memory, of a single file."""
    firsts = row.get("first_samples_ms") or [0.0] * len(row["samples"])
    loads = []
    for i, times in enumerate(zip(row["samples"], firsts, strict=False), 1):
        parts = [
            (name, ms, f"{name}: {number(ms)} ms") for name, ms in zip(("load", "first token"), times, strict=True)
        ]
        loads.append(Bar(f"load {i}", tuple(part for part in parts if part[1]), f"{number(sum(times))} ms"))
    sizes = (
        ("the file", row["model"]["bytes"]),
        ("GPU", row["gpu_bytes"]),
        ("process, before", row["base_rss_bytes"]),
        ("process, peak", row["peak_rss_bytes"]),
    )
    memory = [Bar(name, (("", nbytes / (1 << 20), name),), bytes_text(nbytes)) for name, nbytes in sizes if nbytes]
    return [
        ("Time to load, and to the first token", bars(loads, "ms; the first token also compiles kernels")),
        ("Memory", bars(memory, "MiB")),
    ]


def _mib(row: Row) -> float:
    return float(row["model"]["bytes"]) / (1 << 20)


def _at(row: Row, path: Sequence[str]) -> float:
    value = row
    for name in path:
        value = value[name] or {}
    return float(value or 0)  # type: ignore[arg-type]


def _whole(
    title: str, about: Sequence[str], figures: Sequence[tuple[str, str]], below: str, rows: Sequence[Row]
) -> str:
    first = rows[0]
    cards = "".join(f'<div class="card"><h2>{name}</h2>{body}</div>' for name, body in figures if body)
    notes = dict.fromkeys(text for row in rows for text in row.get("warnings", ()))
    lead = "<br>".join(html.escape(text) for text in about if text)
    backends = ", ".join(dict.fromkeys(str(row["device"]["backend"]) for row in rows))
    warned = "".join(f'<p class="warn">{html.escape(text)}</p>' for text in notes)
    data = json.dumps(list(rows), ensure_ascii=False).replace("</", "<\\/")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)} · webgpu-bench</title><style>{_CSS}</style></head><body>
<h1>{html.escape(title)}</h1><p class="dim">{lead}<br>{html.escape(backends)} ·
{html.escape(first["time"])} · webgpu-bench {html.escape(first["versions"]["webgpu-run"])}</p>
{warned}<div class="plots">{cards}</div>
{below}
<script type="application/json" id="rows">{data}</script></body></html>
"""


def _point(row: Row, x: float) -> Point:
    low, high = row.get("ci95") or (None, None)
    return Point(x, row["mean"], low, high)


def _device(row: Row) -> tuple[str, ...]:
    """What tells one device from another, also one of the same name on another machine."""
    device, machine = row["device"], row.get("machine") or {}
    return device["name"], device["backend"], str(device.get("driver")), str(machine.get("cpu")), row["time"][:10]


_VARIED: tuple[Callable[[Row], str], ...] = (
    lambda row: row["model"]["name"],
    lambda row: row["settings"].get("kv", ""),
    lambda row: row["device"]["name"].partition(" (")[0],
    lambda row: row["device"]["backend"],
    lambda row: row.get("node") or "",
)


def _variants(rows: Sequence[Row]) -> Callable[[Row], str]:
    """A name for what a row measured: of model, cache, device, backend and node, those that differ between rows."""
    varied = [part for part in _VARIED if len({part(row) for row in rows}) > 1]
    return lambda row: " ".join(part(row) for part in varied)


def _settings(rows: Sequence[Row]) -> str:
    """Every setting of the run; values that differ between rows are listed."""
    named = {
        "kv": "KV cache", "chunk": "chunk", "fuse": "fusion", "tune": "tuning", "prompt": "prompts",
        "method": "method", "warmup": "warm-up", "repeat": "rounds",
    }  # fmt: skip
    texts = {True: "on", False: "off"}
    out = []
    for key, name in named.items():
        values = dict.fromkeys(r["settings"][key] for r in rows if r["settings"].get(key) is not None)
        if values:
            out.append(f"{name} {', '.join(texts[v] if isinstance(v, bool) else str(v) for v in values)}")
    return " · ".join(out)


def _above(rows: Sequence[Row]) -> str:
    """Why the GPU time of a row may be longer than its wall time, if there is such a row."""
    tests = [r["test"] for r in rows if (r.get("gpu_ms_per") or 0) > _wall(r)]
    if not tests:
        return ""
    named = html.escape(", ".join(dict.fromkeys(tests)))
    return (
        f" In these tests it is above the wall time: {named}. A dispatch with a pass of its own takes longer than one"
        " that shares a pass, and these runs were made at other times. The shares of the ops hold, their sum does not."
    )


def _wall(row: Row) -> float:
    """Median milliseconds of a prefill, or of a token's share of its submission."""
    return float((row.get("step_ms") or row["latency_ms"])["median"])


def _lines(rows: Sequence[Row], x: str, by: str, name: str) -> list[Series]:
    """Speed by `x`, a line for each value of `by`, for each model if there are several."""
    variant = _variants(rows)
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((variant(row), row[by]), []).append(row)
    return [
        Series(
            f"{of}, {name}{value}" if of else f"{name}{value}",
            tuple(_point(r, r[x]) for r in sorted(group, key=lambda r: r[x])),
        )
        for (of, value), group in groups.items()
    ]


def _prefill(rows: Sequence[Row]) -> str:
    prefills = [r for r in rows if r["phase"] == "prefill"]
    series = _lines(prefills, "tokens", "depth", "depth ")
    return lines(series, "prompt tokens", "tokens/s", log="x") if prefills else ""


def _decode(rows: Sequence[Row]) -> str:
    decodes = [r for r in rows if r["phase"] == "decode"]
    series = _lines(decodes, "depth", "tokens", "tg")
    return lines(series, "tokens in the cache before", "tokens/s") if decodes else ""


def _both(rows: Sequence[Row]) -> str:
    """A bar for each test with a prompt and a reply."""
    variant, drawn = _variants(rows), []
    for row in rows:
        if row["phase"] == "both":
            about = f"{row['test']}: {number(row['mean'])} tokens/s"
            drawn.append(Bar(f"{variant(row)} {row['test']}".strip(), (("", row["mean"], about),), number(row["mean"])))
    return bars(drawn, "tokens/s, prompt and reply together") if drawn else ""


def _growth(rows: Sequence[Row], phase: str) -> str:
    """Wall time and GPU time in ms by length or depth; of one model also the part of the GPU time that is attention."""
    shown = [r for r in rows if r["phase"] == phase]
    if not shown:
        return ""
    x, fixed = ("tokens", "depth") if phase == "prefill" else ("depth", "tokens")
    shown = sorted((r for r in shown if r[fixed] == shown[0][fixed]), key=lambda r: r[x])
    parts: list[tuple[str, Callable[[Row], float | None]]] = [("wall", _wall), ("GPU", lambda r: r["gpu_ms_per"])]
    variant = _variants(rows)
    names = list(dict.fromkeys(variant(r) for r in rows))
    if len(names) == 1:
        parts.append(("attention, part of GPU", lambda r: r.get("attention_ms_per")))
    series = [
        Series(f"{of} {name}".strip(), tuple(Point(r[x], y) for r in shown if variant(r) == of and (y := ms(r))))
        for of in names
        for name, ms in parts
    ]
    label = "prompt tokens" if phase == "prefill" else "tokens in the cache before"
    return lines([s for s in series if s.points], label, "ms", log="xy" if phase == "prefill" else "")


def _part(op: Row) -> str:
    """The name a dispatch is counted under: attention is separate from the linears it may be fused with."""
    kernel: str = op.get("kernel", "")
    return kernel if ATTENTION in kernel else op["op"]


def _ops(rows: Sequence[Row]) -> str:
    """One bar of 100% per test: the share of each op."""
    variant = _variants(rows)
    totals: dict[str, float] = {}
    for row in rows:
        whole = sum(op["gpu_us"] for op in row["ops"]) or 1.0
        for op in row["ops"]:
            totals[_part(op)] = totals.get(_part(op), 0.0) + op["gpu_us"] / whole
    named = sorted(totals, key=lambda name: -totals[name])[:SHOWN_OPS]
    stacked = []
    for row in rows:
        by: dict[str, float] = dict.fromkeys([*named, "other"], 0.0)
        for op in row["ops"]:
            by[_part(op) if _part(op) in named else "other"] += op["gpu_us"]
        whole = sum(by.values())
        if whole:
            parts = [
                (name, us / whole, f"{name}: {number(us / 1e3)} ms, {us / whole:.1%}") for name, us in by.items() if us
            ]
            stacked.append(Bar(f"{variant(row)} {row['test']}".strip(), tuple(parts), f"{number(whole / 1e3)} ms"))
    return bars(stacked, "share of the GPU time per prefill, or per token", 1.0) if stacked else ""


def _roofline(rows: Sequence[Row]) -> str:
    shares, variant = [], _variants(rows)
    for row in rows:
        share = (row.get("roofline") or {}).get("share")
        if share is not None:
            about = f"{row['test']}: {share:.1%} of the limit; the least is {number(row['roofline']['ideal_ms'])} ms"
            shares.append(Bar(f"{variant(row)} {row['test']}".strip(), (("share", share, about),), f"{share:.1%}"))
    if not shares:
        return ""
    drawn = bars(shares, "least time that the adapter needs / time measured", 1.0)
    limits = {_device(row): row for row in reversed(rows) if "memory_by" in (row.get("roofline") or {})}
    if not limits:
        return drawn
    of = "; ".join(_limits(row, named=len(limits) > 1) for row in list(limits.values())[::-1])
    return f'{drawn}<p class="dim">The least time: bytes and operations at {html.escape(of)}.</p>'


def _limits(row: Row, *, named: bool) -> str:
    of, on = row["roofline"], f" on {row['device']['name']}" if named else ""
    return f"{number(of['memory_gb_s'])} GB/s ({of['memory_by']}), {number(of['f32_gflop_s'])} GFLOP/s (FMA f32){on}"


def _table(rows: Sequence[Row], view: Callable[[Row], dict[str, str]]) -> str:
    cells = [view(row) for row in rows]
    shared = [
        k
        for k in ("model", "size", "params", "kv", "device")
        if view is model_cells and len({c[k] for c in cells}) == 1
    ]
    cells = [{k: v for k, v in row.items() if k not in shared} for row in cells]
    empty = [k for k in cells[0] if all(row[k] == "–" for row in cells)]
    cells = [{k: v for k, v in row.items() if k not in empty} for row in cells]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in cells[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(v)}</td>" for v in row.values()) + "</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{html.escape(a)}</dt><dd>{html.escape(b)}</dd>" for a, b in pairs) + "</dl>"


def _host(row: Row) -> list[tuple[str, str]]:
    device, host = row["device"], row["machine"]
    return [
        ("adapter", f"{device['name']} · {device['backend']} · {device['kind']}"),
        ("driver", device["driver"]),
        ("features", ", ".join(device["features"]) or "none that we use"),
        ("kernels", f"{device.get('profile', 'unknown')}, {device.get('tuned', 'unknown')}"),
        ("processor", f"{host['cpu']}, {host['cores']} cores, {bytes_text(host['memory_bytes'])}"),
        ("system", f"{host['system']} · load {host['load']}"),
        ("versions", " · ".join(f"{name} {v}" for name, v in row["versions"].items())),
    ]


def _facts(row: Row) -> str:
    settings = row["settings"]
    memory = f"{bytes_text(row['gpu_bytes'])} on the GPU · peak {bytes_text(row['peak_rss_bytes'])} on the host"
    return _list(
        [
            *_host(row),
            ("model", f"{row['model']['file']} · sha256 {row['model']['sha256']}"),
            ("memory", memory),
            ("runs", f"{settings['warmup']} to warm up, then {settings['repeat']} rounds of every test"),
            ("intervals", "95% of the mean, allowing for a machine that is slower for a while"),
        ]
    )


def _adapter(row: Row, of: str) -> str:
    roof = row.get("adapter_roofline")
    if not roof:
        return ""
    facts = [
        (f"read {way}, {int(size) >> 20} MiB", f"{number(rate)} GB/s")
        for way, rates in roof["read_gb_s"].items()
        for size, rate in rates.items()
    ]
    facts += [(f"copy, {int(size) >> 20} MiB", f"{number(rate)} GB/s") for size, rate in roof["copy_gb_s"].items()]
    facts.append(("FMA f32", f"{number(roof['f32_gflop_s'])} GFLOP/s"))
    if roof["f16_gflop_s"] is not None:
        facts.append(("FMA f16", f"{number(roof['f16_gflop_s'])} GFLOP/s"))
    names = ("dispatch", "encode", "submit", "readback")
    facts += [(name, f"{number(roof[f'{name}_us'])} µs") for name in names]
    return f'<div class="card"><h2>What this adapter can do{of}</h2>{_list(facts)}</div>'
