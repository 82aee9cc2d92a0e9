"""`--list-devices`: the adapters of this machine."""

from __future__ import annotations

from ..errors import DeviceError

_FEATURES = ("timestamp-query", "shader-f16", "subgroup")


def show_devices(choice: str | None) -> int:
    """Print the adapters, best first, with an arrow at the one that would be used. Having none is an error."""
    from rich.table import Table
    from rich.text import Text

    from ..console.terminal import stdout_console
    from ..gpu.adapters import HINT, list_adapters, pick

    adapters = list_adapters()
    if not adapters:
        raise DeviceError("no GPU adapter was found", hint=HINT)
    chosen = pick(choice, adapters)
    grid = Table.grid(padding=(0, 2))
    for adapter in adapters:
        arrow = Text("→" if adapter.index == chosen.index else " ", "green")
        features = ", ".join(feature for feature in _FEATURES if feature in adapter.features)
        kind = "software" if adapter.software else adapter.kind
        grid.add_row(
            arrow,
            str(adapter.index),
            Text(adapter.name, "bold"),
            adapter.backend,
            kind,
            adapter.driver,
            Text(features, "dim"),
        )
    stdout_console().print(grid)
    return 0
