"""Faults at run time, as real processes: each has its own exit code and one line on stderr."""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.errors import ShapeError
from webgpu_run.formats import pte
from webgpu_run.formats.vkgraph import VkTensor
from webgpu_run.gpu.device import Device
from webgpu_run.runtime.open import load

from helpers.command import Result, execute, webgpu_run
from helpers.language import FIXTURES, byte_tokenizer, environment, folder, start

TINY = FIXTURES / "tiny_dyn.pte"
IDS = ("--prompt-ids", "5,6,7", "-n", "3")
NO_ADAPTER = {
    "VK_ICD_FILENAMES": "/nonexistent",
    "VK_DRIVER_FILES": "/nonexistent",
    "__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent",
    "LIBGL_DRIVERS_PATH": "/nonexistent",
}


def one_line(result: Result | subprocess.CompletedProcess[bytes]) -> str:
    """The error of a run: one line, at most one hint, no traceback."""
    err = result.err if isinstance(result, Result) else result.stderr.decode()
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert lines, err
    assert lines[0].startswith("webgpu-run: error: "), err
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: ")), err
    return lines[0].removeprefix("webgpu-run: error: ")


def saved(path: Path, *arrays: object) -> list[str | Path]:
    """The flags that give these arrays as inputs."""
    flags: list[str | Path] = []
    for k, array in enumerate(arrays):
        np.save(path / f"in{k}.npy", np.asarray(array))
        flags += ["--input", path / f"in{k}.npy"]
    return flags


def patched(script: str, *args: str | Path, env: dict[str, str] | None = None) -> Result:
    """The command after some lines of Python that make a real fault happen."""
    return execute(sys.executable, "-c", f"{script}\nfrom webgpu_run.cli.run import main\nmain()", *args, env=env)


def test_inputs_that_do_not_fit_leave_the_graph_usable(device: Device, tmp_path: Path) -> None:
    model = load(TINY, device=device)
    good = [np.asarray([[5, 6, 7]]), np.asarray([0])]
    before = model.run(good)[0]
    for tokens, pos in (
        ([5, 6, 7], [0]),  # rank
        ([[5.5, 6.0]], [0]),  # dtype
        ([[1] * 128], [0]),  # dim over the largest
        ([[2**40]], [0]),  # past 32 bits
        ([[5]], [0, 1]),  # static dim
    ):
        with pytest.raises(ShapeError):
            model.run([np.asarray(tokens), np.asarray(pos)])
        np.testing.assert_array_equal(model.run(good)[0], before)
    with pytest.raises(ShapeError):
        model.run([np.zeros((1, 0), np.int64), np.asarray([0])])
    np.testing.assert_array_equal(model.run(good)[0], before)
    result = webgpu_run(TINY, *saved(tmp_path, [5, 6, 7], [0]))
    assert result.code == 5
    assert "has rank 1 [3], forward takes [1, 127]" in one_line(result)


def test_input_files_that_are_no_arrays(tmp_path: Path) -> None:
    (tmp_path / "story.npy").write_text("Once upon a time")
    np.save(tmp_path / "whole.npy", np.arange(9))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-8])
    for name, says in (("story", "not a .npy file"), ("cut", "a .npy file that is cut short or does not hold numbers")):
        path = tmp_path / f"{name}.npy"
        result = webgpu_run(TINY, "--input", path, "--input", path)
        assert (result.code, one_line(result)) == (3, f"{says} ({path})")
    result = webgpu_run(TINY, "--input", tmp_path / "whole.npy")
    assert one_line(result).startswith("1 input given, 'forward' takes 2: ")


def test_prompts_empty_too_long_and_filling_the_context(tmp_path: Path) -> None:
    model = folder(tmp_path)
    for flags in (("--prompt", ""), ("--prompt-ids", ""), ("--prompt-file", os.devnull)):
        result = webgpu_run(model, *flags)
        assert result.code == 2
        assert "empty" in one_line(result)
    long = ",".join(["7"] * 129)
    result = webgpu_run(TINY, "--prompt-ids", long)
    assert result.code == 5
    assert "129 tokens do not fit the context of 128 positions" in one_line(result)
    # Longer than a call takes, as long as the context: in two calls, and one more token can be said.
    result = webgpu_run(TINY, "--prompt-ids", ",".join(["7"] * 126), "-n", "50", "--stats", "json")
    stats = json.loads(result.err.splitlines()[-1])
    assert (result.code, stats["stop"], stats["generated"]) == (0, "context", 3)
    result = webgpu_run(TINY, "--prompt-ids", ",".join(["7"] * 128), "-n", "50", "--stats", "json")
    stats = json.loads(result.err.splitlines()[-1])
    assert (result.code, stats["stop"], stats["generated"], stats["prefill"]["calls"]) == (0, "context", 1, 2)


@pytest.mark.parametrize("bad", ["512", "-1", "5,6,99999999999999999999"])
def test_token_ids_outside_the_vocabulary(bad: str) -> None:
    result = webgpu_run(TINY, f"--prompt-ids={bad}")
    assert result.code == 5
    assert "outside the model's vocabulary of 512" in one_line(result)


def test_positions_outside_the_cache(device: Device, tmp_path: Path) -> None:
    model = load(TINY, device=device)
    first = model.run([np.asarray([[5, 6, 7]]), np.asarray([0])])[0]
    for pos in (-1, 126, 2**31 - 1):
        with pytest.raises(ShapeError):
            model.run([np.asarray([[5, 6, 7]]), np.asarray([pos])])
    model.run([np.asarray([[9]]), np.asarray([3])])
    np.testing.assert_array_equal(model.run([np.asarray([[5, 6, 7]]), np.asarray([0])])[0], first)  # back to the start
    result = webgpu_run(TINY, *saved(tmp_path, [[5, 6, 7]], [-1]))
    assert result.code == 5
    assert "position -1 is outside" in one_line(result)


def test_tokenizer_missing_corrupt_or_of_another_size(tmp_path: Path) -> None:
    shutil.copy(TINY, tmp_path / "model.pte")
    model = tmp_path / "model.pte"
    result = webgpu_run(model, "--prompt", "x")
    assert result.code == 3
    for name in ("tokenizer.json", "tokenizer.model", "*.tiktoken"):
        assert name in one_line(result)
    result = webgpu_run(model, "--prompt", "x", "--tokenizer", tmp_path / "none.json")
    assert (result.code, "no such tokenizer" in one_line(result)) == (3, True)
    for content in (b"{", b"{}", b"\0\1\2", b"", b"YQ== 0\nYQ== x\n", b"Once upon a time\n", b"\n\nOnce"):
        (tmp_path / "tokenizer.json").write_bytes(content)
        result = webgpu_run(model, "--prompt", "x")
        assert result.code in (3, 4), result.err
        assert "tokenizer" in one_line(result)
        assert ".cc" not in one_line(result)
    byte_tokenizer(300).save(str(tmp_path / "tokenizer.json"))
    result = webgpu_run(model, "--prompt", "x", "-n", "2")
    assert result.code == 0
    assert result.err.startswith("warning: the tokenizer has 300 tokens, the model 512 ")


def test_tiktoken_file(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    shutil.copy(TINY, tmp_path / "model.pte")
    ranks = b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256))
    (tmp_path / "tokenizer.model").write_bytes(ranks)
    result = webgpu_run(tmp_path / "model.pte", "--prompt", "héllo", "-n", "20")
    assert result.code == 0, result.err
    result.out.encode()


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "did not end within 5 s"),
        (
            "{% set x = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set x.s = x.s ~ x.s %}{% endfor %}",
            "needs more",
        ),
        ("{% for i in range(99999) %}{{ 'a' * 99 }}{% endfor %}", "more than 4,194,304 characters"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ nobody.name.first }}", "'nobody' is undefined"),
        ("{% for %}", "Expected"),
        ("{{ raise_exception('only in pairs') }}", "only in pairs"),
    ],
    ids=["endless", "memory", "output", "attributes", "missing", "syntax", "raised"],
)
def test_hostile_chat_templates(template: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(template)
    command = (
        "import json, sys\nfrom webgpu_run.llm.template import Template\nfrom webgpu_run.errors import FormatError\n"
        "t = Template(open(sys.argv[1]).read(), sys.argv[1])\n"
        "try:\n    t.render([{'role': 'user', 'content': 'x'}])\n"
        "except FormatError as e:\n    print(e, file=sys.stderr)"
    )
    result = execute(sys.executable, "-c", command, tmp_path / "t.jinja")
    assert says in result.err
    assert len(result.err.splitlines()) == 1
    assert result.seconds < 30


def test_a_bad_template_ends_the_chat(tmp_path: Path) -> None:
    model = folder(tmp_path, template="{{ raise_exception('only in pairs') }}")
    process = start(model, "--chat", stdin=subprocess.PIPE)
    out, err = process.communicate(b"hello\n", timeout=180)
    assert (process.returncode, out) == (3, b"")
    assert err.startswith(b"webgpu-run: error: the chat template failed: only in pairs (")
    (tmp_path / "tokenizer_config.json").unlink()
    result = webgpu_run(model, "--chat")
    assert result.code == 3
    assert "no chat template: tried chat_template.jinja, tokenizer_config.json" in one_line(result)


def test_no_adapter() -> None:
    result = webgpu_run(TINY, *IDS, env=NO_ADAPTER)
    assert (result.code, result.out) == (6, "")
    assert one_line(result) == "no GPU adapter was found"


def test_adapter_without_timestamps_and_f16() -> None:
    script = "import webgpu_run.gpu.device as d\nd._FEATURES = ('subgroup',)"
    result = patched(script, TINY, *IDS, "--timings")
    assert result.code == 0, result.err
    assert "this adapter has no timestamp queries: wall times only" in result.err
    assert "prefill, per call: host " in result.err
    assert result.out == webgpu_run(TINY, *IDS).out


def limited(megabytes: int, *args: str | Path) -> subprocess.CompletedProcess[bytes]:
    """The command with this much address space."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    command = [sys.executable, "-m", "webgpu_run", *map(str, args)]
    return subprocess.run(command, preexec_fn=limit, capture_output=True, env=environment(), timeout=180)


def test_out_of_memory() -> None:
    """Wherever memory ends: Python, wgpu and the driver each have their own way to fail, and a driver's is a crash."""
    seen = set()
    for megabytes in (300, 600, 900, 1200):
        result = limited(megabytes, TINY, *IDS, "--isolate")
        assert result.returncode in (0, 6), result.stderr
        if result.returncode:
            last = [line for line in result.stderr.decode().splitlines() if line.startswith("webgpu-run: ")]
            assert len(last) == 1, result.stderr  # beside what the driver itself may print
            assert re.search("memory|ended by SIG|can't be loaded|no GPU adapter", last[0])
        seen.add(result.returncode)
    assert 6 in seen


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_device_lost(when: str) -> None:
    """The device is destroyed around the third use of its queue, the first after compiling."""
    lines = {
        "before": "lose(self); return old(self, *given)",
        "during": "record = self.native.record; self.native.record = lambda *g: (lose(self), record(*g))[1]\n"
        "    try: return old(self, *given)\n    finally: self.native.record = record",
        "after": "made = old(self, *given); lose(self); return made",
    }
    script = (
        "import webgpu_run.gpu.device as d\nold = d.Device.call\ncount = [0]\n"
        "def lose(self):\n    count[0] += 1\n    if count[0] == 3: self.handle.destroy()\n"
        f"def call(self, *given):\n    {lines[when]}\n"
        "d.Device.call = call"
    )
    result = patched(script, TINY, *IDS)
    assert result.code == 6, result.err
    assert "the device was lost" in one_line(result)


def test_call_past_its_timeout() -> None:
    result = webgpu_run(TINY, *IDS, "--timeout", "0.001")
    assert (result.code, result.out) == (6, "")
    assert one_line(result) == "a call took more than 0.001 s"


def test_logits_that_are_not_finite(tmp_path: Path) -> None:
    program = pte.load(TINY)
    delegate = program.method().delegates[0]
    assert delegate.graph
    norm = next(v for v in delegate.graph.values if isinstance(v, VkTensor) and v.constant_id >= 0 and v.dims == (128,))
    data = bytearray(TINY.read_bytes())
    at = delegate.constant(norm.constant_id).offset
    data[at : at + 4] = np.float32(np.nan).tobytes()
    (tmp_path / "nan.pte").write_bytes(data)
    for flags in ((), ("--nan-check",), ("--no-fuse",)):
        result = webgpu_run(tmp_path / "nan.pte", *IDS, *flags)
        assert (result.code, result.out) == (7, "")
        assert re.search(r"\w+#\d+ gave \d+ NaN of \d+ numbers, the first at \[", one_line(result))


def mapped(process: subprocess.Popen[bytes], library: str) -> bool:
    try:
        return library in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("library", ["_multiarray", "libwgpu_native", "libLLVM"], ids=["load", "device", "compile"])
def test_interrupted_twice_before_the_first_token(library: str) -> None:
    process = start(TINY, "--prompt-ids", "5,6,7", "-n", "120", "--ignore-eos")
    while process.poll() is None and not mapped(process, library):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    assert b"error" not in err


def test_interrupted_while_decoding() -> None:
    process = start("--prompt", "Once upon a time", "-n", "900", "--ignore-eos")
    assert process.stdout
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert err.startswith(b"load ")
    assert err.rstrip().endswith(b"stop: interrupt")


def test_stdout_closed_while_decoding() -> None:
    process = start("-n", "900", "--ignore-eos")
    assert process.stdout
    process.stdout.read(20)
    process.stdout.close()
    assert process.wait(timeout=180) in (0, 141)
    assert process.stderr
    assert process.stderr.read() == b""
    command = f'"{sys.executable}" -m webgpu_run "{TINY}" --prompt-ids 5,6 -n 2 >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, env=environment(), timeout=180)
    assert done.returncode == 0
    assert done.stderr.startswith(b"load ")


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        ("webgpu_run {} --prompt-ids 5,6 -n 2", "2>&-"),
        ("webgpu_run {} --prompt-ids 5,6 -n 2 --timings --trace-resize=json --stats json", ">&- 2>&- <&-"),
        ("webgpu_run {} --inspect", ">&-"),
        ("webgpu_run.cli.bench {} -p 1 -n 0 -r 1 -w 0 --no-roofline", ">&- 2>&-"),
    ],
)
def test_streams_closed_from_the_start(command: str, closed: str) -> None:
    line = f'"{sys.executable}" -m {command.format(TINY)} {closed}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, env=environment(), timeout=180)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    result = webgpu_run(TINY, *IDS, "--trace", tmp_path / "none" / "x.json")
    assert (result.code, "no such directory" in one_line(result)) == (2, True)
    result = webgpu_run(TINY, *IDS, "--trace", tmp_path)
    assert (result.code, "is a directory" in one_line(result)) == (2, True)
    result = webgpu_run(TINY, *IDS, "--trace", "/dev/full")
    assert (result.code, "cannot write: no space left on device (/dev/full)" in one_line(result)) == (1, True)
    assert Path("/dev/full").is_char_device()
    with open("/dev/full", "wb") as full:
        process = start(TINY, *IDS, stdout=full)
        _, err = process.communicate(timeout=180)
    assert process.returncode == 1
    assert err.decode().splitlines()[0] == "webgpu-run: error: cannot write: no space left on device (stdout)"


def test_output_that_would_overwrite_its_input(tmp_path: Path) -> None:
    model = folder(tmp_path)
    before = model.read_bytes()
    (tmp_path / "link.json").symlink_to(model)
    for flags in (("--trace", model), ("--trace", tmp_path / "link.json"), ("--dump", f"add#1={model}")):
        result = webgpu_run(model, "--prompt", "x", *flags)
        assert result.code == 2
        assert "would overwrite its own input" in one_line(result)
    assert model.read_bytes() == before


def test_two_processes_on_one_device() -> None:
    both = [start(TINY, *IDS, "-q") for _ in range(2)]
    outs = [process.communicate(timeout=180) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outs[0] == outs[1]
    assert outs[0][0]


def test_poor_environment(tmp_path: Path) -> None:
    model = folder(tmp_path / "m")
    gone = tmp_path / "gone"
    gone.mkdir()
    command = (
        f'cd "{gone}" && rmdir "{gone}" && exec "{sys.executable}" -m webgpu_run "{model}" --prompt é -n 20 --timings'
    )
    poor = {"PATH": os.environ["PATH"], "PYTHONPATH": environment()["PYTHONPATH"], "TERM": "dumb", "LANG": "C"}
    poor |= {"COLUMNS": "20", "LC_ALL": "C"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, env=poor, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode()
    assert b"\x1b" not in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "flags",
    [
        *(("-n", n) for n in ("0", "-2", "abc", "1e9")),
        *(("--temp", t) for t in ("-1", "nan", "inf", "x")),
        *(("--top-p", p) for p in ("0", "1.5", "nan", "-0.1")),
        *(("--min-p", p) for p in ("-1", "2")),
        *(("--top-k", "-1"), ("--seed", "-1"), ("--seed", "x"), ("--chunk", "0"), ("--timeout", "0")),
        *(("--prompt-ids", "1,x"), ("--timings=never",), ("--trace-resize=xml",), ("--stats", "xml")),
        *(("--prompt", "a", "--prompt-ids", "1"), ("--system", "x"), ("--chat", "--prompt-ids", "1")),
        *(("--stop", ""), ("--promt", "a"), ("--dump", "x"), ("--check", "--timings")),
    ],
    ids=" ".join,
)
def test_bad_flags(flags: tuple[str, ...]) -> None:
    result = webgpu_run(TINY, *(IDS if flags[0] in ("--check", "--dump") else ()), *flags)
    assert (result.code, result.out) == (2, ""), result.err
    line = one_line(result)
    if flags[0] == "--promt":
        assert "--prompt" in line


def test_isolated_crash_is_an_error_line(tmp_path: Path) -> None:
    """A command buffer submitted twice makes wgpu abort its process."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'WEBGPU_RUN_INSIDE' in __import__('os').environ:\n"
        "    import webgpu_run.gpu.device as d\n"
        "    def submit(self, encoder):\n"
        "        made = encoder.finish()\n"
        "        self.handle.queue.submit([made])\n"
        "        self.handle.queue.submit([made])\n"
        "    d.Device.submit = submit\n"
    )
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"}
    result = execute(sys.executable, "-m", "webgpu_run", TINY, *IDS, "--isolate", env=env)
    assert (result.code, result.out) == (6, "")
    assert "webgpu-run: error: the run was ended by SIGABRT\n" in result.err
    assert webgpu_run(TINY, *IDS, "--isolate", "-q").out == webgpu_run(TINY, *IDS, "-q").out


def test_interrupted_between_chunks_of_a_prompt() -> None:
    process = start("--prompt", "word " * 300, "--chunk", "1", "-n", "2", "--check")  # slow: half a minute
    while process.poll() is None and not mapped(process, "libLLVM"):
        time.sleep(0.02)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (130, b"")
    assert err.rstrip().endswith(b"stop: interrupt") or err.strip() == b""  # or it was still being loaded
