"""`--report`: one self-contained page of a benchmark. No script, no network: SVG and CSS in the file itself."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

from .benchrow import GPU_NOTE
from .benchview import Row, bytes_text, model_cells, number, params_text
from .svg import Bar, Point, Series, bars, lines

SHOWN_OPS = 7
_CSS = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1e21;--dim:#667;--line:#e3e5e9;--card:#f7f8fa;
--c0:#2563a8;--c1:#d97706;--c2:#2f8f5b;--c3:#b0413e;--c4:#7c5cbf;--c5:#0f8b8d;--c6:#a3761d;--c7:#8a8f98}
@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e6e8eb;--dim:#9aa3ad;--line:#2c3036;--card:#1c1f24;
--c0:#6aa6e8;--c1:#f0a64b;--c2:#62c48f;--c3:#e57b77;--c4:#a98ff0;--c5:#4cc3c4;--c6:#d2a64f;--c7:#9aa3ad}}
body{margin:0 auto;padding:28px 24px 48px;max-width:1200px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,"Segoe UI",Helvetica,Arial,sans-serif}
h1{font-size:24px;margin:0 0 2px}h2{font-size:16px;margin:0 0 8px}p{margin:0 0 8px}.dim{color:var(--dim)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(460px,1fr));gap:16px;margin:20px 0}
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
    """The whole page; rows are those of one model on one device, as JSON has them."""
    first = rows[0]
    title = f"{first['model']['name']} on {first['device']['name']}"
    size = f"{bytes_text(first['model']['bytes'])} · {params_text(first['model']['params'])} parameters"
    figures = [
        ("Prefill: tokens/s by length", _prefill(rows)),
        ("Decode: tokens/s by depth of the KV cache", _decode(rows)),
        ("GPU time by op", _ops(rows)),
        ("Share of the roofline", _roofline(rows)),
    ]
    cards = "".join(f'<div class="card"><h2>{name}</h2>{body}</div>' for name, body in figures if body)
    notes = [text for row in rows for text in row.get("warnings", ())]
    warned = "".join(f'<p class="warn">{html.escape(text)}</p>' for text in notes)
    data = json.dumps(list(rows), ensure_ascii=False).replace("</", "<\\/")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)} · webgpu-bench</title><style>{_CSS}</style></head><body>
<h1>{html.escape(title)}</h1><p class="dim">{html.escape(size)} · {html.escape(first["device"]["backend"])} ·
{html.escape(first["time"])} · webgpu-bench {html.escape(first["versions"]["webgpu-run"])}</p>
{warned}<div class="plots">{cards}</div>
<div class="card wide"><h2>Rows</h2>{_table(rows)}<p class="dim">Times are of one prefill (pp) or of one token (tg).
GPU ms: {html.escape(GPU_NOTE)}.</p></div>
<div class="plots"><div class="card"><h2>Machine</h2>{_facts(first)}</div>{_adapter(first)}</div>
<script type="application/json" id="rows">{data}</script></body></html>
"""


def _point(row: Row, x: float) -> Point:
    low, high = row.get("ci95") or (None, None)
    return Point(x, row["mean"], low, high)


def _prefill(rows: Sequence[Row]) -> str:
    found = [r for r in rows if r["phase"] == "prefill"]
    depths = sorted({r["depth"] for r in found})
    series = [
        Series(
            f"depth {d}",
            tuple(_point(r, r["tokens"]) for r in sorted(found, key=lambda r: r["tokens"]) if r["depth"] == d),
        )
        for d in depths
    ]
    return lines(series, "prompt tokens", "tokens/s", log=True) if found else ""


def _decode(rows: Sequence[Row]) -> str:
    found = [r for r in rows if r["phase"] == "decode"]
    counts = sorted({r["tokens"] for r in found})
    series = [
        Series(
            f"tg{n}", tuple(_point(r, r["depth"]) for r in sorted(found, key=lambda r: r["depth"]) if r["tokens"] == n)
        )
        for n in counts
    ]
    return lines(series, "tokens in the cache before", "tokens/s") if found else ""


def _ops(rows: Sequence[Row]) -> str:
    """A bar a test, the whole of it 100%: which op took how much."""
    totals: dict[str, float] = {}
    for row in rows:
        whole = sum(op["gpu_us"] for op in row["ops"]) or 1.0
        for op in row["ops"]:
            totals[op["op"]] = totals.get(op["op"], 0.0) + op["gpu_us"] / whole
    named = sorted(totals, key=lambda name: -totals[name])[:SHOWN_OPS]
    made = []
    for row in rows:
        by: dict[str, float] = dict.fromkeys([*named, "other"], 0.0)
        for op in row["ops"]:
            by[op["op"] if op["op"] in named else "other"] += op["gpu_us"]
        whole = sum(by.values())
        if whole:
            parts = [
                (name, us / whole, f"{name}: {number(us / 1e3)} ms, {us / whole:.1%}") for name, us in by.items() if us
            ]
            made.append(Bar(row["test"], tuple(parts), f"{number(whole / 1e3)} ms"))
    return bars(made, "share of the GPU time of one prefill, or of one token", 1.0) if made else ""


def _roofline(rows: Sequence[Row]) -> str:
    made = []
    for row in rows:
        share = (row.get("roofline") or {}).get("share")
        if share is not None:
            about = f"{row['test']}: {share:.1%} of {number(row['roofline']['ideal_ms'])} ms, the least it could take"
            made.append(Bar(row["test"], (("share", share, about),), f"{share:.1%}"))
    return bars(made, "least time the adapter could take / time it took", 1.0) if made else ""


def _table(rows: Sequence[Row]) -> str:
    shared = ("model", "size", "params", "device")
    cells = [{k: v for k, v in model_cells(row).items() if k not in shared} for row in rows]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in cells[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(v)}</td>" for v in row.values()) + "</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{html.escape(a)}</dt><dd>{html.escape(b)}</dd>" for a, b in pairs) + "</dl>"


def _facts(row: Row) -> str:
    device, host, settings = row["device"], row["machine"], row["settings"]
    return _list(
        [
            ("adapter", f"{device['name']} · {device['backend']} · {device['kind']}"),
            ("driver", device["driver"]),
            ("features", ", ".join(device["features"]) or "none of those we use"),
            ("processor", f"{host['cpu']}, {host['cores']} cores, {bytes_text(host['memory_bytes'])}"),
            ("system", f"{host['system']} · load {host['load']}"),
            ("versions", " · ".join(f"{name} {v}" for name, v in row["versions"].items())),
            ("model", f"{row['model']['file']} · sha256 {row['model']['sha256']}"),
            (
                "memory",
                f"{bytes_text(row['gpu_bytes'])} on the GPU · peak {bytes_text(row['peak_rss_bytes'])} on the host",
            ),
            ("runs", f"{settings['warmup']} to warm up, {settings['repeat']} measured; intervals are 95%"),
        ]
    )


def _adapter(row: Row) -> str:
    roof = row.get("adapter_roofline")
    if not roof:
        return ""
    found = [
        (f"read {way}, {int(size) >> 20} MiB", f"{number(rate)} GB/s")
        for way, rates in roof["read_gb_s"].items()
        for size, rate in rates.items()
    ]
    found += [(f"copy, {int(size) >> 20} MiB", f"{number(rate)} GB/s") for size, rate in roof["copy_gb_s"].items()]
    found.append(("FMA f32", f"{number(roof['f32_gflop_s'])} GFLOP/s"))
    if roof["f16_gflop_s"] is not None:
        found.append(("FMA f16", f"{number(roof['f16_gflop_s'])} GFLOP/s"))
    names = ("dispatch", "encode", "submit", "readback")
    found += [(name, f"{number(roof[f'{name}_us'])} µs") for name in names]
    return f'<div class="card"><h2>What this adapter can do</h2>{_list(found)}</div>'
