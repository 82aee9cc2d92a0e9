"""Options that several commands of `webgpu-bench` have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

FORMATS = ("table", "md", "csv", "json", "jsonl")


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all commands have."""
    for option in (
        click.option("--debug", is_flag=True, help="A traceback with every error."),
        click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
        click.option(
            "--out",
            metavar="FILE",
            help="Also write this file, in the format of its ending (.jsonl, .json, .csv, .md) or of -o.",
        ),
        click.option(
            "-o", "--output", "form", type=click.Choice(FORMATS), help="The format of stdout: by default a table."
        ),
    ):
        command = option(command)
    return command


DEVICE = click.option(
    "--device", metavar="WHICH", help="Adapter: an index, part of its name, cpu, gpu, vulkan, metal or d3d12."
)
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
