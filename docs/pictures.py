#!/usr/bin/env python3
"""Takes the pictures of the README and of docs/ from real runs, so that they show what the commands print today.

    python docs/pictures.py SmolLM2-folder [NAME ...]

The folder is what `examples/export/export.py smollm2 FOLDER` writes. tmux is the terminal, and Chromium
the browser for the report page.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from webgpu_run.bench.page import page

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "pictures"
PROMPT = "$ "
REMOTE_FONTS = re.compile(r"@font-face \{\{.*?\n    \}\}\n", re.S)
BROWSER = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@dataclass(frozen=True)
class Shot:
    """A command in a terminal, and the lines typed after it; each waits until the text before it appears."""

    command: str
    columns: int = 110
    typed: tuple[tuple[str, str], ...] = ()


SHOTS = {
    "chat": Shot(
        "webgpu-run MODEL",
        columns=96,
        typed=(
            ("> ", "What is the capital of France?"),
            ("> ", "Write one sentence about the sea."),
            ("> ", "/exit"),
        ),
    ),
    "trace": Shot('webgpu-run --prompt "Once upon a time" -n 48 --trace-resize', columns=128),
    "timings": Shot('webgpu-run MODEL --prompt "The sea is" -n 24 --timings', columns=128),
    "bench": Shot("webgpu-bench --seq-lens 1,64,512", columns=150),
}


class Terminal:
    """A tmux pane with a plain shell in which webgpu-run is this tree's."""

    def __init__(self, columns: int, folder: Path) -> None:
        self.name = f"pictures-{os.getpid()}"
        for name in ("webgpu-run", "webgpu-bench"):
            module = "webgpu_run" if name == "webgpu-run" else "webgpu_run.cli.bench"
            script = folder / name
            script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m {module} "$@"\n')
            script.chmod(0o755)
        start = f"PATH={shlex.quote(str(folder))}:$PATH PS1={shlex.quote(PROMPT)} exec sh"
        self.tmux(
            "new-session", "-d", "-x", str(columns), "-y", "60", f"TERM=xterm-256color COLORTERM=truecolor {start}"
        )

    def tmux(self, verb: str, *args: str) -> str:
        target = [] if verb == "new-session" else ["-t", self.name]
        named = ["-s", self.name] if verb == "new-session" else []
        done = subprocess.run(["tmux", verb, *named, *target, *args], check=True, capture_output=True, text=True)
        return done.stdout

    def text(self) -> str:
        return self.tmux("capture-pane", "-p", "-S", "-")

    def wait(self, last: str, seconds: float = 300) -> None:
        """Until the cursor's line ends with `last` and nothing changes any more."""
        end, before = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            time.sleep(0.7)
            now = self.text().rstrip()
            if now == before and (now + " ").endswith(last):
                return
            before = now
        raise SystemExit(f"the terminal did not come to {last!r}:\n{self.text()}")

    def type(self, line: str) -> None:
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def close(self) -> None:
        self.tmux("kill-session")


def photograph(shot: Shot, model: Path) -> str:
    """What the terminal shows after the command, with its colours."""
    with tempfile.TemporaryDirectory() as folder:
        shown = model.name
        (Path(folder) / shown).symlink_to(model.resolve())
        terminal = Terminal(shot.columns, Path(folder))
        try:
            terminal.wait(PROMPT)
            terminal.type(f"cd {folder}; clear; tmux clear-history")
            terminal.wait(PROMPT)
            terminal.type(shot.command.replace("MODEL", shown))
            for last, line in shot.typed:
                terminal.wait(last)
                terminal.type(line)
            terminal.wait(PROMPT)
            lines = terminal.tmux("capture-pane", "-p", "-e", "-S", "-").rstrip().splitlines()
        finally:
            terminal.close()
    return "\n".join(lines[:-1])  # the last line is the shell's next prompt


def draw(text: str, shot: Shot, target: Path) -> None:
    """An SVG that needs no font from elsewhere."""
    console = Console(record=True, width=shot.columns, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.from_ansi(text), soft_wrap=True)
    template = REMOTE_FONTS.sub("", CONSOLE_SVG_FORMAT).replace("font-family: Fira Code,", "font-family: ui-monospace,")
    target.write_text(console.export_svg(title="", theme=MONOKAI, code_format=template, unique_id=target.stem) + "\n")


def report_page() -> None:
    """The page of `webgpu-bench --report` for the recorded run by length and depth, light and dark."""
    browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
    if browser is None:
        raise SystemExit("the report pictures need Chromium")
    rows = [json.loads(line) for line in (ROOT / "bench/results/growth.jsonl").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "report.html"
        html.write_text(page(rows), encoding="utf-8")
        for name, scheme in (("light", "1"), ("dark", "0")):
            command = [
                *(browser, *BROWSER, f"--user-data-dir={folder}/{name}", "--window-size=1240,1308"),
                f"--blink-settings=preferredColorScheme={scheme}",
                f"--screenshot={OUT / f'report-{name}.png'}",
            ]
            subprocess.run([*command, html.as_uri()], check=True, capture_output=True, timeout=120)


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    model, wanted = Path(sys.argv[1]), sys.argv[2:] or [*SHOTS, "report"]
    OUT.mkdir(exist_ok=True)
    for name in wanted:
        if name == "report":
            report_page()
        else:
            draw(photograph(SHOTS[name], model), SHOTS[name], OUT / f"{name}.svg")
        print(f"{name} drawn", file=sys.stderr)


main()
