"""The console scripts. Nothing is imported before Ctrl-C is handled, because importing takes a noticeable time."""

from ..console.early import guard_imports


def webgpu_run() -> None:
    """The script `webgpu-run`."""
    guard_imports()
    from .run import main

    main()


def webgpu_bench() -> None:
    """The script `webgpu-bench`."""
    guard_imports()
    from .bench import main

    main()
