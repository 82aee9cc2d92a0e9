"""Runs a command and writes its exit code, seconds and peak memory to a file: peak.py REPORT COMMAND...

A process of its own because a child's peak includes what its parent held when it was forked, and this one holds little.
"""

import json
import os
import sys
import time

start = time.monotonic()
child = os.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
unit = 1 if sys.platform == "darwin" else 1024
with open(sys.argv[1], "w") as file:
    code = os.waitstatus_to_exitcode(status)
    json.dump({"code": code, "seconds": time.monotonic() - start, "peak": usage.ru_maxrss * unit}, file)
