"""The console scripts. Nothing is imported before Ctrl-C is handled, because importing takes a noticeable time."""

from ..console.early import guard_imports


def webgpu_run() -> None:
    """The script `webgpu-run`."""
    guard_imports()
    from ..console.command import end_process_after
    from .run import main

    end_process_after(main)


def webgpu_bench() -> None:
    """The script `webgpu-bench`."""
    guard_imports()
    from ..console.command import end_process_after
    from .bench import main

    end_process_after(main)
