"""Python starts with this file when its folder is in PYTHONPATH: it takes away what only Linux, or only POSIX, has."""

import builtins
import io
import os
import signal
import sys

MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty")
FUNCTIONS = {
    os: ("fork", "forkpty", "getloadavg", "getuid", "pread", "register_at_fork", "sched_getaffinity", "sysconf"),
    signal: ("ITIMER_REAL", "SIGALRM", "SIGHUP", "alarm", "getitimer", "pthread_kill", "setitimer"),
}
GONE = ("/proc", "/sys")

for name in MODULES:
    sys.modules[name] = None  # an import raises ImportError
for module, names in FUNCTIONS.items():
    for name in names:
        delattr(module, name)


def absent(function):
    def checked(path, *args, **kwargs):
        if isinstance(path, str | os.PathLike) and (os.fspath(path) + "/").startswith(tuple(f"{g}/" for g in GONE)):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return function(path, *args, **kwargs)

    return checked


for module, names in {builtins: ("open",), io: ("open",), os: ("listdir", "open", "scandir", "stat")}.items():
    for name in names:
        setattr(module, name, absent(getattr(module, name)))
