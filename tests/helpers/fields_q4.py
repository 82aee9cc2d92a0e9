"""An independent computation of every field of the dispatches of 4-bit linears, from their shapes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from webgpu_run.ops.limits import Limits
from webgpu_run.ops.plan import Plan, Step
from webgpu_run.ops.spec import Args, Op

LINEAR = ("linear_q4gsw", "linear_last_row_q4gsw", "linear_dq8ca_q4gsw", "linear_qcs4w")
ALL = 2**31
ENDS = ("OUTS", "BIAS", "RESIDUAL", "SWIGLU", "EDGE", "WIDE")  # of q4_out_rows.wgsl


def up(a: int, b: int) -> int:
    return (a + b - 1) // b


def lanes_of(columns: Sequence[int], limits: Limits) -> int:
    """Lanes of a strip: on a GPU so few that there are 128 strips, if columns suffice. Elsewhere 16 lanes, if a profile
    has so many, become 8 where one of three weights has no whole strips."""
    if limits.profile.splits == 1:
        return 8 if len(columns) == 3 and any(n % 64 for n in columns) else limits.profile.lanes
    halved = (limits.profile.lanes >> i for i in range(8))
    return next(n for n in halved if n == 1 or sum(columns) // (4 * n) >= 128)


def texels(k: int, group: int, lanes: int) -> int:
    """Of the scales and weights of a strip."""
    return k // group * (1 + group // 8) * lanes


def side(strips: int, k: int, group: int, lanes: int, limits: Limits) -> int:
    """Strips of a row of a texture: where lanes share no columns, three or two if it has room."""
    near = 2 if strips % 6 else 3
    return near if limits.profile.splits == 1 and near * texels(k, group, lanes) <= limits.max_texture else 1


def parts(k: int, group: int, lanes: int, limits: Limits) -> int:
    """Rows of a texture that a strip takes, a whole number of groups in each."""
    groups = k // group
    return next(
        n for n in range(1, groups + 1) if groups % n == 0 and texels(k, group, lanes) <= n * limits.max_texture
    )


def packable(k: int, group: int, limits: Limits) -> bool:
    """Whether a weight is stored in strips: blocks of 32 and, off GPUs, pairs of x that are a uniform of their own."""
    size = 2 if 4 * k > limits.max_uniform else 4
    if limits.profile.splits == 1 and (size * k > limits.max_uniform or size * k % limits.uniform_align):
        return False
    return k % 32 == 0 == group % 32


def few_rows(m: int, k: int, lanes: int, limits: Limits, norm: bool, fresh: bool) -> dict[str, int]:
    """Rows, columns and splits of a workgroup on a GPU that has few rows."""
    rows = {1: 1, 2: 2, 3: 4, 4: 4}.get(m, 8)
    repeats = norm or fresh  # work that every workgroup does
    quads = max(lanes, {1: 4 if repeats else 1, 2: 4, 4: 8, 8: 16}[rows])
    most = min(limits.profile.lanes * limits.profile.splits, limits.max_invocations)
    blocks, pair = k // 32, 2 if rows > 1 else 1
    words = {(s, t): s * (t * rows * 9 * 4 + pair * quads * 4 + quads) for s in range(1, 65) for t in range(1, 5)}
    room = {at for at, n in words.items() if 4 * n <= limits.max_workgroup_bytes}
    rounds = up(blocks, max(s for s in range(1, 65) if s <= blocks and s * quads <= most and (s, 1) in room))
    rounds = {5: 6, 7: 8}.get(rounds, up(rounds, 2) * 2 if rounds > 8 else rounds)
    if rows == 1 and rounds > 4 and blocks % rounds:  # up to a quarter more invocations, none of them idle
        exact = (t for t in range(2, rounds, 2) if blocks % t == 0 and t >= 0.8 * rounds)
        kept = (t for t in exact if (blocks // t, 1) in room and quads * blocks // t <= limits.max_invocations)
        rounds = max(kept, default=rounds)
    splits = next(s for s in range(1, 65) if s * rounds >= blocks)
    held = quads // 2 // (2 if norm else 1)  # blocks of x that invocations copy, two words each
    held = 2 if quads == 1 else held
    turns = max(t for t in range(1, 5) if rounds % t == 0 and (t == 1 or (t * rows <= held and (splits, t) in room)))
    return {"ROWS": rows, "QUADS": quads, "SPLITS": splits, "TURNS": turns}


def window(m: int, row: int, limits: Limits) -> int:
    """Rows of so many bytes that a uniform holds, in fours, with the next ones where a uniform may start."""
    most = limits.max_uniform // row
    if m == 1 or not most:
        return min(most, 1)
    by = 4 if most >= 4 else 1
    return next(r for r in range(most // by * by, 0, -by) if r * row % limits.uniform_align == 0 or r == by)


def few_of(m: int, held: int, limits: Limits) -> int:
    """Rows of a workgroup where lanes share no columns: what costs m rows least, if each workgroup costs 0.8 more."""
    costs = {n: up(m, n) * (10 * n + 8) for n in (3, 4, 6, 8) if up(m, n) * n <= held and n <= limits.profile.rows}
    return m if m < 5 else max(n for n, cost in costs.items() if cost == min(costs.values()))


def image_takes(m: int, k: int, limits: Limits) -> bool:
    """Whether rows may be an image: whole 256 bytes that a texture is wide enough for, in layers of 64 that it has."""
    wide = 4 * k % 256 == 0 and k <= 4 * limits.max_texture
    return limits.profile.images and limits.profile.shuffle and wide and 1 < m <= 64 * limits.max_layers


def few(m: int, k: int, limits: Limits, size: int = 4) -> int:
    """Rows of a window, with so many bytes per element, where more of them would be copied into an image."""
    takes = image_takes(2, k, limits) if size == 4 else pairs_take(2, k, limits)
    return min(window(m, size * k, limits), 16 if takes else m + 2**31)


def pairs_take(m: int, k: int, limits: Limits) -> bool:
    """Whether rows of pairs may be an image: padded to 256 bytes, of 16 bytes in a texel."""
    wide = up(2 * k, 256) * 16 <= limits.max_texture
    return limits.profile.images and limits.profile.shuffle and wide and m <= 64 * limits.max_layers


def ready(
    m: int,
    k: int,
    limits: Limits,
    *,
    norm: bool,
    eps: float,
    rounded: bool,
    pairs: bool,
    in_bytes: bool = False,
    image: bool = False,
) -> list[dict[str, Any]]:
    """The dispatches that normalise and round rows before a linear: a window each, or all from storage."""
    profile = limits.profile
    windows = profile.images and not image and 4 * k <= limits.max_uniform
    held = few(m, k, limits) if windows else m
    if windows and pairs and pairs_take(2, k, limits):  # whole windows of f32 rows in one of pairs
        held = max(n for n in range(1, held + 1) if few(m, k, limits, 2) % n == 0)
    consts = {"WG": 8 if profile.shuffle else profile.workgroup, "K": k, "NORM": int(norm)}
    consts["PITCH"] = up(k, 128) * 128 if image else k
    consts |= {
        "ROUND": int(rounded),
        "PACKED": int(pairs),
        "BYTES": int(in_bytes),
        "WINDOW": held if windows else 0,
    }
    found: list[dict[str, Any]] = []
    for first in range(0, m, held):
        live = min(held, m - first)
        params = {"rows": live, "first": first, "eps": eps}
        step = {"kernel": "ready_rows" + "_subgroup" * profile.shuffle, "params": params, "consts": consts}
        at = {"at": (first * k * 4, held * k * 4)} if windows else {}
        found.append({**step, "grid": (*spread(live, limits), 1), **at})
    return found


def expected(
    m: int, k: int, group: int, widths: Sequence[int], limits: Limits, forms: Sequence[str] = (), eps: float = 0.0
) -> list[dict[str, Any]]:
    """Every dispatch of a linear in strips; forms are bias, norm, residual, swiglu, round."""
    profile, swiglu = limits.profile, "swiglu" in forms
    columns = [up(widths[0], 2) * 4] if swiglu else widths
    gpu, lanes = profile.splits > 1, lanes_of(columns, limits)
    strips = [up(n, 4 * lanes) for n in columns]
    tiled = gpu and m > 16 and limits.max_workgroup_bytes >= 8704 and limits.max_invocations >= 128
    long = not gpu and 4 * k > limits.max_uniform  # x is bound whole
    roomy = gpu or (not long and (profile.shuffle or k <= 8192))
    fresh = "round" in forms and m == 1 and roomy  # the linear rounds its row
    packed = "round" in forms and not fresh and not gpu
    in_bytes = "round" in forms and gpu and limits.dot4
    normed = "norm" in forms and long  # by a dispatch, from storage
    copied = "round" not in forms and not normed and image_takes(m, k, limits) and m > few(m, k, limits)
    pairs = packed and pairs_take(m, k, limits) and m > few(m, k, limits, 2)  # rounded, and copied
    image = copied or pairs
    image = image or ("round" not in forms and "norm" in forms and not long and m > 4 and image_takes(m, k, limits))
    size = 2 if packed else 4  # bytes of an element
    held, rows = m, few_of(m, m + 8, limits)
    whole = long and not image and not packed
    if not gpu and not image and not whole:
        held = few(m, k, limits, size)
        rows = few_of(min(m, held), held, limits)
    folded = "norm" in forms and not packed and not long and (m == 1 or (profile.shuffle and not image))
    count = sum(strips)
    near = side(count, k, group, lanes, limits)
    each = 3 if near == 3 and rows in (range(7) if profile.rows == 8 else (1,)) else 2  # strips of a workgroup
    if m == 1 and near < 3 and count % 8 == 0:
        each = 4
    tall = 4 if m <= 32 or up(count * lanes, 16) * up(m, 64) < 128 else 8
    shares = few_rows(m, k, lanes, limits, folded, fresh) if gpu else {}
    quads = 16 if tiled else shares.get("QUADS", each * lanes)  # fours of columns of a workgroup
    rows = 8 * tall if tiled else shares.get("ROWS", rows)
    # columns that are not there: of a strip that is not full, or of one that is not there itself
    edge = m == 1 or count * lanes % quads > 0 or any(n % (4 * lanes >> swiglu) for n in widths)
    edge = edge or count * lanes > quads * limits.max_workgroups
    of_lane = 4 >> swiglu
    wide = of_lane if all(n // of_lane * of_lane == n for n in widths) else 1
    flags = (1 if swiglu else len(widths), "bias" in forms, "residual" in forms, swiglu, edge, wide)
    kept = dict(zip(ENDS, map(int, flags), strict=True))
    consts = {"K": k, "G": group, "LANES": lanes, "TOGETHER": near, "PARTS": parts(k, group, lanes, limits)}
    consts |= {"IMAGES": int(profile.images), **kept}
    if tiled:
        kernel = "linear_dq8ca_tiled" if in_bytes else "linear_q4gsw_tiled"
        consts |= {"TALL": tall} | ({} if in_bytes else {"SIZES": int("round" in forms)})
    elif gpu:
        name = "narrow" if shares["QUADS"] == 1 else "few" + "_round" * fresh
        kernel = ("linear_dq8ca_" if in_bytes else "linear_q4gsw_") + name
        consts |= shares | {"NORM": int(folded), "ROUND": int(fresh)}
        consts |= {} if in_bytes else {"SIZES": int("round" in forms and m > 1)}
    else:
        consts |= {"ROWS": rows, "STRIPS": each}
        factors = {} if pairs else {"FACTORS": int("norm" in forms and image)}
        consts |= {"STAGED_ROWS": 64, **factors} if image else {} if fresh else {"WINDOW": 0 if whole else held}
        consts |= {} if packed else {"NORM": int(folded)}
        kernel = ("linear_dq8ca_strips" if packed else "linear_q4gsw_strips") + "_subgroup" * profile.shuffle
        kernel = f"linear_{'dq8ca' if pairs else 'q4gsw'}_rows" if image else kernel
        if fresh:
            kernel = "linear_dq8ca_" + ("fresh" if profile.shuffle else "staged")
    ends = list(itertools.accumulate(strips))
    outs = [*(widths[:1] if swiglu else widths), 0, 0][:3]
    found: list[dict[str, Any]] = []
    stage: dict[str, Any] = {"stage": (m, k // 4)} if copied else {}
    stage |= {"stage": (m, up(k, 128) * 16)} if pairs else {}
    if image and "norm" in forms and not pairs:
        many = int(copied)
        norm = {"K": k, "ROWS": 4, "MANY": many, "STAGED_ROWS": 64, "WINDOW": 0 if many else few(m, k, limits)}
        from_x = {} if copied else {"at": (0, few(m, k, limits) * k * 4)}
        params = {"rows": m, "eps": eps}
        norm["GROUPS"] = profile.lanes // 8  # of lanes, with four rows each
        grid = (up(m, 4 * norm["GROUPS"]), 1, 1)
        found = [{"kernel": "norm_rows", "params": params, "grid": grid, "consts": norm, **from_x}]
    elif ("round" in forms and not fresh) or ("norm" in forms and not folded and (m > 1 or long)):
        of = {"norm": "norm" in forms, "rounded": "round" in forms, "in_bytes": in_bytes, "image": pairs}
        found = ready(m, k, limits, eps=eps, pairs=packed, **of)
    for first in range(0, m, held):
        live = min(held, m - first)
        params = {
            "n0": outs[0],
            "n1": outs[1],
            "n2": outs[2],
            "strip1": ends[0],
            "strip2": ends[1] if len(ends) > 1 else ends[0] + ALL,
            "rows": live,
            "out_row": first,
            "eps": eps,
        }
        grid = (up(live, rows), *spread(up(count * lanes, quads), limits))
        at = {} if image or gpu or whole else {"at": (first * k * size, held * k * size)}
        found.append({"kernel": kernel, "params": params, "grid": grid, "consts": consts, **at, **stage})
    return found


def spread(groups: int, limits: Limits) -> tuple[int, int]:
    rows = up(groups, limits.max_workgroups)
    return (up(groups, rows), rows)


def plain(m: int, k: int, group: int, n: int, limits: Limits, bias: bool) -> dict[str, Any]:
    """The one dispatch where the shape does not fit strips."""
    rows = 4 if m > 1 else 1
    params = {"m": m, "n": n, "k": k, "group": group, "pitch": up(n, 4) * 4}
    grid = (*spread(up(n * up(m, rows), 64), limits), 1)
    consts = {"WG": 64, "ROWS": rows, "BIAS": int(bias)}
    return {"kernel": "linear_q4gsw", "params": params, "grid": grid, "consts": consts}


def seen(step: Step) -> dict[str, Any]:
    numbers = {name: value for name, value in step.consts if not isinstance(value, str)}
    found = {"kernel": step.kernel, "params": dict(step.params), "grid": step.grid, "consts": numbers}
    for _, held in step.windows:
        found["at"] = (held.offset, held.nbytes)
    if step.idle:
        found["idle"] = step.idle.below
    if step.stage:
        found["stage"] = (step.stage.rows, step.stage.width)
    return found


def check(op: Op, a: Args, plan: Plan, limits: Limits) -> None:
    """The plan of a 4-bit linear, plain or fused, is the one that its shapes need."""
    *lead, k = a["x"]
    m = 1
    for n in lead:
        m *= n
    fused = op.name.startswith("wr.")
    last = op.short == "linear_last_row_q4gsw"
    above, m = (m - 1, 1) if last else (0, m)
    group = k if op.short == "linear_qcs4w" else a.int("group")
    widths = [a[f"w{i}"][0] for i in range(len(a.attrs["w"]))] if fused else [a["w"][0]]
    has = {
        "bias": bool(a.attrs["bias"]) if fused else "bias" in a,
        "norm": "norm" in a,
        "residual": "res" in a,
        "swiglu": bool(a.attrs.get("swiglu")),
        "round": bool(a.attrs.get("rounded")),
    }
    forms = [name for name, there in has.items() if there]
    strips = fused or packable(k, group, limits)  # fusion makes only what fits
    eps = a.num("eps") if fused else 0.0
    want = [plain(m, k, group, widths[0], limits, has["bias"])]
    if strips:
        want = expected(m, k, group, widths, limits, forms, eps)
    route = ("" if strips else "plain-") + ("gemm" if m > 1 else "gemv")
    route += "+round" * has["round"] + "+norm" * has["norm"] + "+swiglu" * has["swiglu"] + "+add" * has["residual"]
    if op.short == "linear_dq8ca_q4gsw":
        count = m * k
        grid = (*spread(up(count, 64), limits), 1)
        params = {"count": count, "width": k, "low": -128, "high": 127}
        want.insert(0, {"kernel": "round_rows", "params": params, "grid": grid, "consts": {"WG": 64}})
    if last:
        route += "+last"
        first = next(step for step in want if "ready" in step["kernel"] or "linear" in step["kernel"])
        first["at"] = (above * k * 4, k * 4)
    assert plan.route == route, f"{op.name}: route {plan.route}, expected {route}"
    got = [seen(step) for step in plan.steps]
    assert got == want, f"{op.name}: {got}, expected {want}"
