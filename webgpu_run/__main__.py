"""`python -m webgpu_run` is `webgpu-run`."""

from .cli.run import main

main()
