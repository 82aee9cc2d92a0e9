"""Plots as inline SVG: lines with error bars, and stacked bars. Colours are CSS variables of the page."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 16, 46
COLOURS = 8  # --c0 … --c7
INTERVALS = 1.5  # an interval does not make the axis longer than this times the largest value

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement, with its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar of parts (name, length, tooltip); `end` is written after the last part."""

    name: str
    parts: tuple[tuple[str, float, str], ...]
    end: str = ""


def text(x: float, y: float, words: str, anchor: str = "middle", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{html.escape(words)}</text>'


def ticks(top: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * 0.999)
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def short(x: float) -> str:
    """An axis label."""
    return f"{x:,.0f}" if abs(x) >= 10 or x == int(x) else f"{x:.3g}"


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from below `low` to above `high`."""
    return [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9) + 1)]


def lines(series: Sequence[Series], x_label: str, y_label: str, *, log: str = "") -> str:
    """A line plot; `log` is "x" or "xy" for logarithmic axes, which need positive values."""
    points = [p for s in series for p in s.points]
    xs = sorted({p.x for p in points})
    log = log if xs[0] > 0 and all(p.y > 0 for p in points) else ""
    largest = max(p.y for p in points)
    top = min(max(p.high or p.y for p in points), INTERVALS * largest)  # longer intervals are cut at the top
    ys = decades(min(p.y for p in points), top) if log == "xy" else ticks(top)

    def place(x: float) -> float:
        return math.log2(x) if log else x

    def rise(y: float) -> float:
        return math.log10(max(y, ys[0])) if log == "xy" else y

    first, last = place(xs[0]), place(xs[-1])
    floor, ceiling = rise(ys[0]), rise(ys[-1])
    wide, high = WIDTH - LEFT - RIGHT - 20, HEIGHT - TOP - BOTTOM

    def px(x: float) -> float:
        return LEFT + 10 + (wide / 2 if last == first else (place(x) - first) / (last - first) * wide)

    def py(y: float) -> float:
        return TOP + high * (1 - (rise(y) - floor) / (ceiling - floor))

    out = [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(y):.1f}" y2="{py(y):.1f}" class="grid"/>'
        + text(LEFT - 8, py(y) + 4, short(y), "end")
        for y in ys
    ]
    out += [text(px(x), HEIGHT - BOTTOM + 18, short(x)) for x in _spread(xs, px)]
    out.append(text(LEFT + 10 + wide / 2, HEIGHT - 8, x_label, kind="label"))
    middle = TOP + high / 2
    out.append(f'<g transform="rotate(-90 14 {middle})">{text(14, middle, y_label, kind="label")}</g>')
    for i, s in enumerate(series):
        out.append(_curve(s, f"var(--c{i % COLOURS})", px, py))
    return _figure("".join(out), WIDTH, HEIGHT, [s.name for s in series] if len(series) > 1 else [])


def _spread(xs: Sequence[float], px: Scale) -> list[float]:
    """The labels that fit: one that would touch the previous one is skipped."""
    kept: list[float] = []
    for x in xs:
        if not kept or px(x) - px(kept[-1]) > 26:
            kept.append(x)
    return kept


def _curve(s: Series, colour: str, px: Scale, py: Scale) -> str:
    at = [(px(p.x), py(p.y), p) for p in s.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in at)
    out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for x, y, p in at:
        if p.low is not None and p.high is not None:
            a, b = py(max(p.low, 0.0)), py(p.high)
            end = f"M{x - 4:.1f} {b:.1f}h8" if b >= TOP else ""
            out.append(f'<path d="M{x:.1f} {a:.1f}V{max(b, TOP):.1f}M{x - 4:.1f} {a:.1f}h8{end}" stroke="{colour}"/>')
        about = f"{s.name}: {p.y:,.2f} at {short(p.x)}"
        if p.low is not None and p.high is not None:
            half = (p.high - p.low) / 2
            about += f" (95%: ±{half:,.2f})" if half < p.y else " (95%: over ±100%)"
        out.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{html.escape(about)}</title></circle>'
        )
    return "".join(out)


def bars(rows: Sequence[Bar], label: str, top: float | None = None) -> str:
    """Horizontal stacked bars; parts with the same name have the same colour."""
    names = list(dict.fromkeys(name for row in rows for name, _, _ in row.parts))
    most = top or max((sum(v for _, v, _ in row.parts) for row in rows), default=1.0) or 1.0
    left, pitch = 10 + 7.8 * max((len(row.name) for row in rows), default=4), 26
    wide = WIDTH - left - 90
    out = []
    for i, row in enumerate(rows):
        y, x = 8 + i * pitch, left
        out.append(text(left - 8, y + 14, row.name, "end"))
        for name, value, about in row.parts:
            w = min(value / most, 1.0) * wide
            colour = f"var(--c{names.index(name) % COLOURS})"
            out.append(
                f'<rect x="{x:.1f}" y="{y}" width="{max(w, 0.5):.1f}" height="18" fill="{colour}">'
                f"<title>{html.escape(about)}</title></rect>"
            )
            x += w
        out.append(text(x + 6, y + 14, row.end, "start"))
    high = 8 + len(rows) * pitch + 24
    out.append(text(left + wide / 2, high - 6, label, kind="label"))
    return _figure("".join(out), WIDTH, high, names if len(names) > 1 else [])


def _figure(inner: str, width: int, height: int, names: Sequence[str]) -> str:
    legend = "".join(
        f'<span><i style="background:var(--c{i % COLOURS})"></i>{html.escape(name)}</span>'
        for i, name in enumerate(names)
    )
    key = f'<div class="legend">{legend}</div>' if legend else ""
    return f'<svg viewBox="0 0 {width} {height}" role="img">{inner}</svg>{key}'
