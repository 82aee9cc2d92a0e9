"""What a start does once and not again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

TINY = Path(__file__).parent / "fixtures" / "tiny_dyn.pte"
COUNT = """
import sys
from webgpu_run.graph.planner import Engine
build, engines = Engine.__init__, []
def counted(self, *args):
    engines.append(self)
    build(self, *args)
Engine.__init__ = counted
from webgpu_run.cli.run import main
sys.argv = ["webgpu-run", sys.argv[1], "--input", sys.argv[2], "--input", sys.argv[3], "--quiet"]
try:
    main()
finally:
    print(len(engines))
"""


def test_a_run_plans_the_graph_to_check_it_and_to_run_it(tmp_path: Path) -> None:
    """The check needs no device and knows the file's own ops; only the second engine fits the device."""
    np.save(tmp_path / "ids.npy", np.array([[1]]))
    np.save(tmp_path / "pos.npy", np.array([0]))
    paths = [str(TINY), str(tmp_path / "ids.npy"), str(tmp_path / "pos.npy")]
    root = str(Path(__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", COUNT, *paths], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "2"
