"""`python -m webgpu_run` is `webgpu-run`."""

from .cli import main

main()
