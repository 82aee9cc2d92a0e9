"""`python -m webgpu_run` is `webgpu-run`."""

from .cli.entry import webgpu_run

webgpu_run()
