"""`--list-devices`: what the machine has to run on."""

from __future__ import annotations

from ..errors import DeviceError

_FEATURES = ("timestamp-query", "shader-f16", "subgroup")


def show_devices(choice: str | None) -> int:
    """Prints the adapters, best first, the one that would be used marked; exit 6 when there is none."""
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
        mark = Text("→" if adapter.index == chosen.index else " ", "green")
        notes = ", ".join(feature for feature in _FEATURES if feature in adapter.features)
        kind = "software" if adapter.software else adapter.kind
        grid.add_row(
            mark,
            str(adapter.index),
            Text(adapter.name, "bold"),
            adapter.backend,
            kind,
            adapter.driver,
            Text(notes, "dim"),
        )
    stdout_console().print(grid)
    return 0
