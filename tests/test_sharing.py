"""Threads that share a model or a device, children of fork(), and what is left of devices that are gone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from helpers.command import HERE

TOOL = HERE / "tools" / "share_device.py"
COMMON = f"""
import os, signal, sys, threading, time
import numpy as np
from webgpu_run import load
from webgpu_run.errors import DeviceError
PATH = {str(HERE / "fixtures" / "tiny_dyn.pte")!r}
INPUTS = [np.asarray([[1, 2, 3]]), np.zeros(1, np.int64)]
"""


def child(code: str, timeout: float = 60) -> str:
    """What the code prints; it runs in a process of its own, which a mistake aborts or hangs."""
    command = [sys.executable, "-c", COMMON + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=HERE.parent)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.parametrize("what", ["model", "device"])
def test_four_threads(what: str) -> None:
    """Without the device's lock one model in two threads aborts, and two models on one device raise errors."""
    command = [sys.executable, TOOL, what, "--seconds", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.endswith(" 0 errors\n")


def test_waiting_for_another_thread_is_interruptible() -> None:
    out = child("""
        model = load(PATH)
        first = model.run(INPUTS)[0].tobytes()
        held, free = threading.Event(), threading.Event()

        def hold():
            with model.device.lock:
                held.set()
                free.wait(20)

        def interrupt(number, frame):
            raise KeyboardInterrupt

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        start = time.monotonic()
        try:
            model.run(INPUTS)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - start < 5)
        free.set()
        thread.join()
        print(model.run(INPUTS)[0].tobytes() == first)
    """)
    assert out.split() == ["interrupted", "True", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("use", ["model.run(INPUTS)", "model.start([1], 0)", "model.reset()", "load(PATH)"])
def test_use_after_fork_is_refused(use: str) -> None:
    """The child used to hang: the threads of the driver and of the device exist only in the parent."""
    out = child(f"""
        model = load(PATH)
        first = model.run(INPUTS)[0].tobytes()
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            try:
                {use}
            except DeviceError as error:
                print("refused:", error, "/", error.hint, flush=True)
            os._exit(0)
        deadline = time.monotonic() + 20
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                print("the child hangs")
                break
            time.sleep(0.05)
        print(model.run(INPUTS)[0].tobytes() == first)
    """)
    refused, parent = out.splitlines()
    assert refused.startswith("refused: the GPU was in use before fork()")
    assert "spawn" in refused
    assert parent == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_loads_first_may_use_the_gpu() -> None:
    """Only a GPU that was in use before fork() is out of reach."""
    out = child("""
        pid = os.fork()
        if not pid:
            print(load(PATH).run(INPUTS)[0].shape, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
    """)
    assert out.startswith("(1, ")


def test_devices_leave_no_threads_and_files() -> None:
    """Each load() opens a device: its waiting thread, wgpu's own, the driver's, and its log handler go with it."""
    out = child(
        """
        import logging

        def state():
            tasks = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0
            files = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
            return threading.active_count(), tasks, files, len(logging.getLogger("wgpu").handlers)

        def settled(want):
            # Threads that are ending may take a moment.
            deadline = time.monotonic() + 5
            while (threading.active_count() > 1 or state() != want) and time.monotonic() < deadline:
                time.sleep(0.01)
            return state()

        states = []
        for _ in range(21):
            model = load(PATH)
            model.run(INPUTS)
            del model
            states.append(settled(states[-1] if len(states) > 1 else None))
        print(len(set(states[1:])), *states[-1])
        """,
        timeout=200,
    )
    kinds, threads, *_ = map(int, out.split())
    assert kinds == 1, "threads, files or log handlers grow with every load()"
    assert threads == 1
