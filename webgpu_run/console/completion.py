"""Shell completion, where click's own falls short."""

from __future__ import annotations

from click.shell_completion import FishComplete, add_completion_class


@add_completion_class
class WholeFishComplete(FishComplete):
    """Click's script for fish splits a line at every comma, and so cuts descriptions."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')
