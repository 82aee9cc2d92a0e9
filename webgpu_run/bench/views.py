"""The columns of the tables of models and of loads."""

from __future__ import annotations

from .tables import Row, View, bytes_text, interval_text, number, params_text


def model_cells(row: Row) -> dict[str, str]:
    """The columns of a model's row: llama-bench's first, then ours. Times are per prefill, or per token."""
    share = (row.get("roofline") or {}).get("share")
    latency, burst = row.get("latency_ms", {}), row.get("tokens_per_delivery")
    return {
        **({"node": row["node"]} if "node" in row else {}),
        "model": row["model"]["name"],
        "size": bytes_text(row["model"]["bytes"]),
        "params": params_text(row["model"]["params"]),
        "kv": row.get("settings", {}).get("kv", "–"),
        "device": row["device"]["name"].partition(" (")[0],
        "test": row["test"],
        "t/s": f"{row['mean']:.2f} ± {row['sd']:.2f}" if "mean" in row else " " * 17,
        "each": number(row.get("per_sequence")),
        "95%": interval_text(row),
        "median ms": number(latency.get("median")),
        "p90 ms": number(latency.get("p90")),
        "max ms": number(latency.get("max")),
        "burst": f"{burst:.1f}" if burst else "–",
        "step ms": number((row.get("step_ms") or {}).get("median")),
        "ttft ms": number(row.get("ttft_ms")),
        "compile ms": number(row.get("compile_ms")),
        "host ms": number(row.get("host_ms_per")),
        "GPU ms": number(row.get("gpu_ms_per")),
        "attn ms": number(row.get("attention_ms_per")),
        "% roof": f"{share:.1%}" if share is not None else "–",
        "J/token": number((row.get("energy") or {}).get("j_per_token")),
        "GPU mem": bytes_text(row.get("gpu_bytes")),
        "peak mem": bytes_text(row.get("peak_rss_bytes")),
    }


MODEL = View(
    model_cells,
    (
        *(
            "model.name",
            "model.sha256",
            "model.bytes",
            "model.params",
            "device.name",
            "device.backend",
            "device.driver",
        ),
        *(
            "test",
            "phase",
            "tokens",
            "depth",
            "batch",
            "mean",
            "per_sequence",
            "sd",
            "median",
            "p90",
            "ci95",
            "samples",
            "latency_ms.median",
        ),
        *(
            "latency_ms.p90",
            "latency_ms.max",
            "tokens_per_delivery",
            "step_ms.median",
            "ttft_ms",
            "first_run_ms",
            "compile_ms",
            "host_ms_per",
            "gpu_ms_per",
            "attention_ms_per",
        ),
        *(
            "roofline.share",
            "roofline.gpu_share",
            "gpu_bytes",
            "peak_rss_bytes",
            "energy.j_per_token",
            "settings.kv",
            "settings.repeat",
            "settings.warmup",
            "time",
            "schema",
        ),
    ),
    (
        *(
            "compile ms",
            "attn ms",
            "host ms",
            "p90 ms",
            "step ms",
            "burst",
            "params",
            "size",
            "GPU ms",
            "% roof",
            "ttft ms",
            "device",
            "max ms",
        ),
        *("median ms", "95%", "model"),
    ),
)


def load_cells(row: Row) -> dict[str, str]:
    """The columns of a row of `webgpu-bench load`."""
    return {
        "file": row["model"]["file"],
        "size": bytes_text(row["model"]["bytes"]),
        "params": params_text(row["model"]["params"]),
        "load ms": f"{number(row['mean'])} ± {number(row['sd'])}" if "mean" in row else " " * 15,
        "95%": interval_text(row),
        "first token ms": number(row.get("first_ms")),
        "process peak": bytes_text(row.get("peak_rss_bytes")),
        "before": bytes_text(row.get("base_rss_bytes")),
        "GPU": bytes_text(row.get("gpu_bytes")),
    }


LOAD = View(
    load_cells,
    (
        *("model.file", "model.sha256", "model.bytes", "model.params", "mean", "sd", "median", "ci95", "samples"),
        *("first_ms", "base_rss_bytes", "load_rss_bytes", "peak_rss_bytes", "gpu_bytes"),
        *("device.name", "device.backend", "time", "schema"),
    ),
    ("before", "params", "95%", "GPU", "size", "first token ms", "process peak"),
)
