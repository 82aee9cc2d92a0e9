#!/usr/bin/env python3
"""Two Ray nodes on this machine, one of which is killed halfway: the output must be complete, in order and equal.

    python -m venv ray && ray/bin/pip install -e '.[ray]'
    ray/bin/python tests/tools/ray_runs.py [--model MODEL.pte] [--rows 60] [-n 24] [--parallel 4] [--bench]

A head without adapters and two nodes with one worker each start on this machine, with Ray's token authentication on.
The same prompts run one at a time on one machine without Ray; with Ray, several at a time on each node; with Ray while
the node of one worker gets SIGKILL after half of the rows; and once without a token, which must be refused. With
`--bench`, `webgpu-bench --ray` measures both nodes. Everything that was started is stopped at the end. Ray listens on
all interfaces; to have none but loopback, as root:
`unshare -n sh -c 'ip link set lo up && ray/bin/python tests/tools/ray_runs.py'`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
WORDS = ("red", "blue", "green", "small", "large", "old", "young", "quick", "slow", "warm", "cold", "round")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Nodes:
    """Ray processes of ours, each node with its own resources and folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        self.env = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
            "PYTHONPATH": str(ROOT),
        }

    def start(self, name: str, adapters: int) -> None:
        where = ["--head", f"--port={self.port}", "--include-dashboard=false"] if not self.processes else []
        where = where or [f"--address={self.address}"]
        resources = json.dumps({"webgpu": adapters} if adapters else {})
        command = [str(BIN / "ray"), "start", *where, "--block", f"--node-name={name}", f"--resources={resources}"]
        command += ["--node-ip-address=127.0.0.1", "--num-cpus=1", "--object-store-memory=400000000"]
        command += ["--disable-usage-stats", f"--temp-dir={self.folder}/ray"] if "--head" in where else []
        log = (self.folder / f"{name}.log").open("wb")
        self.processes[name] = subprocess.Popen(command, env=self.env, stdout=log, stderr=log, start_new_session=True)

    def wait(self, adapters: int) -> None:
        """Until the cluster answers and offers so many adapters."""
        script = f"import ray; ray.init({self.address!r}, log_to_driver=False, logging_level='error')\n"
        script += f"raise SystemExit(ray.cluster_resources().get('webgpu', 0) != {adapters})"
        for _ in range(60):
            if not subprocess.run([sys.executable, "-c", script], env=self.env, capture_output=True).returncode:
                return
            time.sleep(1)
        raise SystemExit("the nodes did not start; see " + str(self.folder))

    def kill(self, name: str) -> None:
        """End a node at once: every process of its session."""
        process = self.processes.pop(name)
        for child in _family(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self.processes)[::-1]:
            self.kill(name)


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def run(flags: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    script = "from webgpu_run.cli.entry import webgpu_run; webgpu_run()"
    command = [sys.executable, "-c", script, *flags]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.endswith("_ms")} for row in rows]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("-n", type=int, default=24)
    parser.add_argument("--parallel", default="4", help="prompts at a time on each node")
    parser.add_argument("--bench", action="store_true")
    args = parser.parse_args(argv)
    faults = []
    with tempfile.TemporaryDirectory(prefix="ray-") as name:
        folder = Path(name)
        prompts = folder / "in.jsonl"
        lines = [
            {"prompt": f"The {WORDS[i % 12]} {WORDS[i * 5 % 11]} dog", "temperature": i % 2} for i in range(args.rows)
        ]
        prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
        model = [args.model] if args.model else []
        flags = [*model, "--prompts", str(prompts), "-n", str(args.n), "--seed", "5", "--ignore-eos", "--parallel"]
        nodes = Nodes(folder)
        plain_env = {key: value for key, value in nodes.env.items() if not key.startswith("RAY_AUTH")}
        alone = run([*flags, "1", "--out", str(folder / "alone.jsonl")], nodes.env)
        print(alone.communicate()[1].strip().splitlines()[-1])
        want = rows_of(folder / "alone.jsonl")
        try:
            nodes.start("head", 0)
            nodes.wait(0)
            for count, worker in enumerate(("north", "south"), 1):  # in turn: they would choose the same ports
                nodes.start(worker, 1)
                nodes.wait(count)
            refused = run(
                [*flags, args.parallel, "--ray", nodes.address],
                {**plain_env, "HOME": str(folder), "RAY_AUTH_MODE": "token"},
            )
            error = refused.communicate()[1].strip()
            reason = next((line for line in error.splitlines() if "error:" in line), "")
            print(f"without a token: exit {refused.returncode}: {reason}")
            if refused.returncode == 0:
                faults.append("a command without a token was let in")
            together = run(
                [*flags, args.parallel, "--out", str(folder / "both.jsonl"), "--ray", nodes.address], nodes.env
            )
            said = together.communicate()[1].strip()
            print(said)
            if not all(f"{name}, " in said for name in ("north", "south")):
                faults.append("two nodes: one of them did nothing")
            if together.returncode or rows_of(folder / "both.jsonl") != want:
                faults.append(f"two nodes: exit {together.returncode}, or other rows")
            if args.bench:
                faults += bench(folder, nodes, model)
            out = folder / "killed.jsonl"
            killed = run([*flags, args.parallel, "--out", str(out), "--ray", nodes.address], nodes.env)
            journal = out.with_name(out.name + ".journal")
            while killed.poll() is None and (
                not journal.exists() or journal.read_bytes().count(b"\n") < args.rows // 2
            ):
                time.sleep(0.02)
            done = journal.read_bytes().count(b"\n") - 1 if journal.exists() else args.rows
            nodes.kill("south")
            print(f"killed a node after {done} of {args.rows} rows")
            said = killed.communicate()[1].strip()
            print(said)
            if ", then lost" not in said:
                faults.append("the killed node had done nothing before")
            if killed.returncode or rows_of(out) != want:
                faults.append(f"a node killed: exit {killed.returncode}, or other rows")
            if not 0 < done < args.rows:
                faults.append("the node was not killed halfway")
        finally:
            nodes.stop()
    print("\n".join(faults) or f"{args.rows} rows: complete, in order and equal")
    return 1 if faults else 0


def bench(folder: Path, nodes: Nodes, model: list[str]) -> list[str]:
    """`webgpu-bench --ray`: both nodes in one table, one file and one page."""
    script = "from webgpu_run.cli.entry import webgpu_bench; webgpu_bench()"
    out, page = folder / "bench.jsonl", folder / "bench.html"
    flags = ["-p", "16", "-n", "8", "-r", "2", "--no-roofline", "--out", str(out), "--report", str(page)]
    command = [sys.executable, "-c", script, *model, *flags, "--ray", nodes.address]
    result = subprocess.run(command, env=nodes.env, capture_output=True, text=True, check=False)
    print(result.stdout, result.stderr)
    if result.returncode:
        return [f"webgpu-bench --ray: exit {result.returncode}"]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    seen = {(row["node"], row["test"]) for row in rows}
    if seen != {(node, test) for node in ("north", "south") for test in ("pp16", "tg8")}:
        return [f"webgpu-bench --ray: rows of {sorted(seen)}"]
    text = page.read_text()
    return [] if "north" in text and "south" in text else ["webgpu-bench --ray: the page does not name the nodes"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
