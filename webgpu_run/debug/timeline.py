"""`--trace out.json`: the run as a Chrome trace for Perfetto, with a host track and a GPU track."""

from __future__ import annotations

import json
from typing import Any

from ..runtime.calls import ModelCall
from ..runtime.model import Model
from .layers import layers_of

_PROCESS, _HOST, _GPU = 1, 1, 2


class Timeline:
    """An observer that collects events. GPU clocks have their own zero, so a call's last dispatch is put at its end."""

    def __init__(self, title: str, model: Model, zero_ns: int) -> None:
        self._zero = zero_ns
        device, count = model.device.name, model.metadata.get("get_n_layers")
        graphs = [runner.graph for runner in model.runners]
        self._layers = layers_of(graphs[0], count if isinstance(count, int) else None) if len(graphs) == 1 else []
        self.events: list[dict[str, Any]] = [
            {"ph": "M", "pid": _PROCESS, "tid": 0, "name": "process_name", "args": {"name": title}},
            {"ph": "M", "pid": _PROCESS, "tid": _HOST, "name": "thread_name", "args": {"name": "host"}},
            {"ph": "M", "pid": _PROCESS, "tid": _GPU, "name": "thread_name", "args": {"name": f"GPU · {device}"}},
        ]

    def span(self, name: str, start_ns: int, nanoseconds: int, *, gpu: bool = False, **args: Any) -> None:
        """Add one slice to a track."""
        self.events.append(
            {
                "ph": "X",
                "pid": _PROCESS,
                "tid": _GPU if gpu else _HOST,
                "name": name,
                "cat": "gpu" if gpu else "host",
                "ts": (start_ns - self._zero) / 1e3,
                "dur": nanoseconds / 1e3,
                "args": args,
            }
        )

    def __call__(self, call: ModelCall) -> None:
        stats = call.stats
        end = call.start_ns + call.wall_ns
        self.span(
            f"{call.phase} {call.tokens}",
            call.start_ns,
            call.wall_ns,
            tokens=call.tokens,
            position=call.position,
            dispatches=stats.dispatches,
            uniform_bytes=stats.arena_bytes,
            upload_bytes=stats.upload_bytes,
            read_bytes=stats.read_bytes,
        )
        self.span("plan and compile", call.start_ns, min(stats.compile_ns, call.wall_ns))
        self.span("wait", end - stats.wait_ns, stats.wait_ns)
        if not stats.timed:
            return
        last = max(d.begin_ns + d.gpu_ns for d in stats.timed)
        for d in stats.timed:
            layer = self._layers[d.node] if d.node < len(self._layers) else -1
            self.span(
                f"{d.op} · layer {layer}" if layer >= 0 else d.op,
                end - (last - d.begin_ns),
                d.gpu_ns,
                gpu=True,
                node=d.node,
                layer=layer if layer >= 0 else None,
                kernel=d.kernel,
                route=d.route,
                live=list(d.live_dims),
                grid=list(d.grid),
                bytes=d.work[0],
                flops=d.work[1],
            )

    def to_json(self) -> bytes:
        return json.dumps({"traceEvents": self.events, "displayTimeUnit": "ms"}).encode()
