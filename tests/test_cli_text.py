"""`webgpu-run` for text, as real processes: prompts, streams, sampling, stopping, chat."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.formats import pte_writer

from helpers.command import Result, webgpu_run
from helpers.language import FIXTURES, TEMPLATE, byte_tokenizer, environment, folder, on_terminal, start, word_tokenizer
from helpers.samples import add_program

STATS = re.compile(
    r"^load [\d,]+ ms · compile [\d,]+ ms · prefill \d+ tok [\d,]+ ms [\d,.]+ tok/s · "
    r"decode \d+ tok [\d,]+ ms(?: [\d,.]+ tok/s)? · total [\d,]+ ms · ttft [\d,]+ ms · GPU [\d,]+ [kM]B · stop: (\w+)$"
)


def stats(result: Result) -> dict[str, object]:
    """The last line on stderr, of a run with --stats json."""
    return json.loads(result.err.splitlines()[-1])  # type: ignore[no-any-return]


def ids(text: str) -> list[int]:
    return [int(word) for word in text.split()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def golden() -> tuple[list[int], list[int]]:
    """A prompt and the greedy ids that follow it, from eager logits."""
    data = np.load(FIXTURES / "tiny_dyn.npz")
    said = [int(data[f"logits_{i}"].argmax()) for i in range(7)]
    return data["tokens_0"].reshape(-1).tolist(), said


def test_greedy_ids_are_those_of_eager(golden: tuple[list[int], list[int]]) -> None:
    prompt, said = golden
    args = (FIXTURES / "tiny_dyn.pte", "--prompt-ids", ",".join(map(str, prompt)), "-n", len(said))
    result = webgpu_run(*map(str, args))
    assert (result.code, ids(result.out)) == (0, said)
    found = STATS.match(result.err.splitlines()[-1])
    assert found, result.err
    assert found[1] == "length"


def test_prefill_token_by_token_and_without_fusion(golden: tuple[list[int], list[int]]) -> None:
    prompt, said = golden
    args = ("--prompt-ids", ",".join(map(str, prompt)), "-n", str(len(said)), "--stats", "json")
    for extra in (("--chunk", "1"), ("--chunk", "4", "--no-fuse")):
        result = webgpu_run(FIXTURES / "tiny_dyn.pte", *args, *extra)
        assert ids(result.out) == said
        calls = -(-len(prompt) // int(extra[1]))
        assert stats(result)["prefill"]["calls"] == calls  # type: ignore[index]


def test_stdout_is_the_text_alone(model: Path) -> None:
    """Also what is in brackets, and whatever bytes the tokens have."""
    tokenizer = byte_tokenizer()
    prompt = tokenizer.encode("so it is").ids
    bare = webgpu_run(FIXTURES / "tiny_dyn.pte", "--prompt-ids", ",".join(map(str, prompt)), "-n", "24")
    result = webgpu_run(model, "--prompt", "so it is", "-n", "24", "--ignore-eos")
    assert result.out == tokenizer.decode(ids(bare.out)) + "\n" * (not result.out.endswith("\n\n"))
    assert STATS.match(result.err.splitlines()[-1]), result.err


def test_markup_is_not_parsed(tmp_path: Path) -> None:
    words = [f"[red]{i}[/]" for i in range(510)] + ["[/bold]", "[link=x]"]
    path = folder(tmp_path, tokenizer=word_tokenizer(words))
    result = webgpu_run(path, "--prompt", "[red]5[/] [red]9[/]", "-n", "4")
    assert result.code == 0
    assert re.fullmatch(r"( ?\[(red|/bold|link=x)\]?\S*){4}\n", result.out), result.out


def test_prompt_from_pipe_file_and_flag(model: Path, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("he said\n")
    told = [webgpu_run(model, "--prompt", "he said", "-n", "4", "-q")]
    told.append(webgpu_run(model, "--prompt-file", tmp_path / "p.txt", "-n", "4", "-q"))
    command = [sys.executable, "-m", "webgpu_run", str(model), "-n", "4", "-q"]
    for extra in ((), ("--prompt", "-")):
        done = subprocess.run(
            [*command, *extra], input=b"he said\n", capture_output=True, env=environment(), timeout=120
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode() == told[0].out == told[1].out
    assert told[0].err == ""


def test_nothing_in_a_pipe_is_an_empty_prompt(model: Path) -> None:
    """While without any stdin, as cron has it, there is the demo's."""
    command = [sys.executable, "-m", "webgpu_run", str(model), "-n", "1"]
    done = subprocess.run(command, input=b"", capture_output=True, env=environment(), timeout=120)
    assert (done.returncode, done.stderr) == (2, b"webgpu-run: error: the prompt is empty\n")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=120)
    assert done.returncode == 0
    assert done.stderr.startswith(b"no --prompt given: 'Once upon a time' is used\n")


def test_same_seed_same_text(model: Path) -> None:
    args = ("--prompt", "in the", "-n", "12", "--temp", "1.3", "--top-k", "200", "--top-p", "0.98", "--min-p", "0.001")
    a, b, c = (webgpu_run(model, *args, "--seed", *seed) for seed in (["7"], ["7", "--no-fuse"], ["8"]))
    assert a.out == b.out != c.out
    random = webgpu_run(model, *args)
    seed = re.search(r"^seed (\d+)$", random.err, re.M)
    assert seed
    assert webgpu_run(model, *args, "--seed", seed[1]).out == random.out


def test_drawing_without_temperature_is_told(model: Path) -> None:
    given = ("--prompt", "in the", "-n", "1", "--top-k", "5", "--top-p", "0.9", "--min-p", "0.1", "--seed", "1")
    warning = "warning: --top-k, --top-p, --min-p, --seed without --temp above 0: the likeliest token is taken"
    assert webgpu_run(model, *given).err.splitlines()[:2] == ["hint: --chat applies the model's chat template", warning]
    assert webgpu_run(model, *given, "-q").err == ""
    assert "warning" not in webgpu_run(model, *given, "--temp", "1").err


def test_same_seed_same_text_twenty_times() -> None:
    """In as many processes, some of which sample on the host."""
    args = ("--prompt", "Once upon a time", "-n", "8", "-q", "--temp", "2", "--top-k", "300", "--top-p", "0.98")

    def tell(i: int) -> Result:
        return webgpu_run(*args, "--seed", str(11 + (i == 20)), *(["--no-fuse"] * (i % 7 == 6)))

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(tell, range(21)))
    assert [(t.code, t.err) for t in told] == [(0, "")] * 21
    assert len({t.out for t in told[:20]}) == 1
    assert told[20].out != told[0].out


def test_stop_string(model: Path) -> None:
    whole = webgpu_run(model, "--prompt", "in the", "-n", "16", "--ignore-eos", "-q").out.rstrip("\n")
    middle = whole[len(whole) // 2 : len(whole) // 2 + 2]
    result = webgpu_run(model, "--prompt", "in the", "-n", "16", "--ignore-eos", "--stop", middle, "--stats", "json")
    assert result.out.rstrip("\n") == whole[: whole.find(middle)].rstrip("\n")
    assert stats(result)["stop"] == "stop"


def test_stop_strings_of_a_variable(tmp_path: Path) -> None:
    """One a line: it may have spaces."""
    words = folder(tmp_path, tokenizer=word_tokenizer([str(i) for i in range(512)]))
    args = (words, "--prompt", "5 9", "-n", "6", "--ignore-eos", "-q")
    whole = webgpu_run(*args).out.split()
    for stop, count in ((f"{whole[2]} nothing", 6), (f"nothing\n{' '.join(whole[2:4])}\n", 2)):
        assert webgpu_run(*args, env={"WEBGPU_RUN_STOP": stop}).out.split() == whole[:count]


def test_static_file_prefills_token_by_token() -> None:
    data = np.load(FIXTURES / "tiny_static.npz")
    calls = [(data[f"tokens_{i}"].reshape(-1), int(data[f"logits_{i}"].argmax())) for i in range(int(data["n_calls"]))]
    starts = [i for i in range(int(data["n_calls"])) if int(data[f"pos_{i}"].reshape(-1)[0]) == 0]
    end = starts[1] if len(starts) > 1 else len(calls)
    given = [int(tokens[0]) for tokens, _ in calls[:end]]
    result = webgpu_run(
        FIXTURES / "tiny_static.pte", "--prompt-ids", ",".join(map(str, given)), "-n", "1", "--stats", "json"
    )
    assert ids(result.out) == [calls[end - 1][1]]
    assert stats(result)["prefill"] == {**stats(result)["prefill"], "tokens": end, "calls": end}  # type: ignore[dict-item]


def test_chat_keeps_the_cache(model: Path) -> None:
    process = start(
        model,
        "--chat",
        "--turns",
        "-n",
        "5",
        "--ignore-eos",
        "--trace-resize=json",
        "--stats",
        "none",
        stdin=subprocess.PIPE,
    )
    out, err = process.communicate(b"who is it\nand who are you\n", timeout=180)
    assert process.returncode == 0
    calls = [json.loads(line) for line in err.decode().splitlines()]
    first, second = (call for call in calls if call["phase"] == "prefill")
    tokenizer = byte_tokenizer()
    opening = tokenizer.encode("<|im_start|>user\nwho is it<|im_end|>\n<|im_start|>assistant\n").ids
    assert (first["position"], first["tokens"]) == (0, len(opening))
    # Four of the five tokens of the reply have been run; the fifth comes with the second question.
    assert second["position"] == len(opening) + 4
    added = tokenizer.encode("<|im_end|>\n<|im_start|>user\nand who are you<|im_end|>\n<|im_start|>assistant\n").ids
    assert second["tokens"] == len(added) + 1
    assert out.decode().count("\n") >= 2


def test_chat_forgets_the_oldest_turns_when_full(model: Path) -> None:
    questions = "".join(f"{'tell me ' * 4}{i}\n" for i in range(4)).encode()
    process = start(model, "--chat", "--turns", "-n", "8", "--system", "be kind", stdin=subprocess.PIPE)
    _, err = process.communicate(questions, timeout=180)
    assert process.returncode == 0
    assert b"messages were forgotten" in err


def test_on_a_terminal_the_prompt_leads_and_progress_goes(model: Path) -> None:
    code, seen = on_terminal(model, "--prompt", "so it is", "-n", "6", "--ignore-eos", columns=40, NO_COLOR="1")
    assert code == 0
    assert "prefill" in seen
    assert "so it is" in seen
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", seen)  # no colour
    assert "stop: length" in seen


def test_chat_on_a_terminal(model: Path) -> None:
    code, seen = on_terminal(model, "--chat", "-n", "3", typed="who is it\n/reset\n/exit\n")
    assert code == 0
    assert seen.count("> ") >= 3
    assert "decode 2 tok" in " ".join(seen.split())


def test_commands_of_a_chat(model: Path) -> None:
    """A command is never sent to the model. An unknown command is an error."""
    then = [("Ctrl-C ends a reply, Ctrl-D the chat", "/help\n"), ("end the chat, as Ctrl-D does", "/rest now\n")]
    code, seen = on_terminal(model, "--chat", then=[*then, ("no such command: /rest;", "/exit\n")])
    assert code == 0
    assert re.search(r"/reset +forget what was said", seen)
    assert "decode 0 tok" in " ".join(seen.split())
    process = start(model, "--chat", "--turns", "-n", "2", "-q", stdin=subprocess.PIPE)
    out, err = process.communicate(b"/nosuch\n /nosuch\n", timeout=180)
    assert err.startswith(b"no such command: /nosuch; /help lists them")
    assert out.count(b"\n") >= 1


def test_ctrl_c_in_a_chat(model: Path) -> None:
    """It clears a line, stops a prefill, and at an empty line ends the chat."""
    then = [("> ", "half"), ("half", "\x03"), ("\x1b[?2004h> ", "who are you\n"), ("prefill", "\x03")]
    then += [("the question is forgotten\x1b[0m\r\n\x1b[?2004h> ", "who\n"), ("> ", "\x04")]
    slow = (model, "--chat", "--chunk", "1", "--check", "-n", "2", "--ignore-eos")
    code, seen = on_terminal(*slow, then=then)
    assert (code, "decode 1 tok" in " ".join(seen.split())) == (0, True)
    code, seen = on_terminal(*slow, then=[("> ", "\x03")])
    assert code == 130
    assert re.search(r"> (\x1b\S*)?\s*check: 0 op", seen), seen


def test_template_in_a_json_file(model: Path, tmp_path: Path) -> None:
    """Such as another model's tokenizer_config.json: its chat_template is used, one by name where there are several."""
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": TEMPLATE}]

    def said(content: object) -> tuple[bytes, bytes]:
        (tmp_path / "c.json").write_text(json.dumps(content))
        process = start(model, "--chat", "-n", "4", "--template", tmp_path / "c.json", "-q", stdin=subprocess.PIPE)
        return process.communicate(b"who is it\n", timeout=180)

    assert said({"chat_template": TEMPLATE}) == said({"chat_template": named}) == chat(model)
    assert b"error: it has no chat_template (" in said({})[1]


def chat(model: Path) -> tuple[bytes, bytes]:
    process = start(model, "--chat", "-n", "4", "-q", stdin=subprocess.PIPE)
    return process.communicate(b"who is it\n", timeout=180)


def test_a_linked_model_has_its_files_beside_the_link_or_the_target(model: Path, tmp_path: Path) -> None:
    """As in a cache of downloads, where all files are links to blobs; or as one link to a folder elsewhere."""
    blobs, cache, alone = (tmp_path / name for name in ("blobs", "cache", "alone"))
    for place in (blobs, cache, alone):
        place.mkdir()
    for i, file in enumerate(sorted(model.parent.iterdir())):
        shutil.copy(file, blobs / f"{i}")
        (cache / file.name).symlink_to(blobs / f"{i}")
    (alone / "other.pte").symlink_to(model)
    assert chat(cache / "model.pte") == chat(alone / "other.pte") == chat(model)


def test_any_model(tmp_path: Path) -> None:
    data = np.load(FIXTURES / "tiny_dyn.npz")
    np.save(tmp_path / "tokens.npy", data["tokens_0"].reshape(1, -1))
    np.save(tmp_path / "pos.npy", np.asarray([0]))
    given = ("--input", tmp_path / "tokens.npy", "--input", tmp_path / "pos.npy")
    result = webgpu_run(FIXTURES / "tiny_dyn.pte", *given, "--output", tmp_path / "out")
    assert result.code == 0
    assert result.out.startswith("output_0  float32 [1, 512]  min ")
    assert "forward " in result.err
    np.testing.assert_allclose(np.load(tmp_path / "out" / "output_0.npy"), data["logits_0"].reshape(1, -1), atol=1e-4)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["output_0.npy"]
    told = stats(webgpu_run(FIXTURES / "tiny_dyn.pte", *given, "--stats", "json"))
    assert told["forward"]["calls"] == 1  # type: ignore[index]
    assert told["forward"]["ms"] > 0  # type: ignore[index]
    for flags in (("--prompt", "x"), ("--chat",), ("-n", "128"), ("--temp", "0")):
        result = webgpu_run(FIXTURES / "tiny_dyn.pte", *given, *flags)
        assert (result.code, f"error: {flags[0]} cannot be used with --input" in result.err) == (2, True)
    assert webgpu_run(FIXTURES / "tiny_dyn.pte", *given, env={"WEBGPU_RUN_TEMP": "1"}).code == 0


def test_a_model_without_tokens(tmp_path: Path) -> None:
    pte_writer.write(tmp_path / "add.pte", add_program())
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.save(tmp_path / "x.npy", x)
    result = webgpu_run(tmp_path / "add.pte", "--input", tmp_path / "x.npy", "--check", "--check-resize", "-q")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("output_0  float32 [4, 8]  min ")
    result = webgpu_run(tmp_path / "add.pte", "--prompt", "x")
    assert result.code == 4
    assert "hint: --input FILE, once for each input, runs any model" in result.err
