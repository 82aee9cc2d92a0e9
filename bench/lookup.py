#!/usr/bin/env python3
"""The speed of `--lookup` over that of ordinary decoding, on ten texts of five kinds.

    python bench/lookup.py model.pte [-n 128] [--rounds 3] [--kv f16] [--temp 0.8]

Each text is generated with and without lookup by turns, in one process, after a first round that is not counted. A line
has the ratio of the times from the first token to the last, by the wall clock and by processor time (which other
processes on the machine disturb less, and which counts the work of a software adapter), each as the median of the
rounds with the smallest and the largest; then how many guesses were right, and whether the ids were the same.

On a busy machine both clocks vary by more than guesses cost. So a second table has the ratio by usual costs: each kind
of call (an ordinary step, a call with 4 or 8 rows, the first step after it) counts as the median processor time of all
calls of its kind in this run. `--out` writes everything as JSON lines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from webgpu_run import LLM  # noqa: E402
from webgpu_run.llm.lookup import ROWS, Gate, LookupDecoder  # noqa: E402

CODE = '''def read_table(path):
    """Read a table of nubmers from a file."""
    rows = []
    with open(path) as file:
        for line in file:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            rows.append([float(cell) for cell in line.split(",")])
    return rows


def column_means(rows):
    """The mean of each column."""
    means = []
    for column in zip(*rows):
        means.append(sum(column) / len(column))
    return means
'''
CLASS = '''class Stack:
    """A stack of items."""

    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("the stack is empty")
        return self.items.pop()

    def peek(self):
        if not self.items:
            raise IndexError("the stack is empty")
        return self.items[-1]

    def is_empty(self):
        return len(self.items) == 0
'''
ARTICLE = """\
The river Elbe rises in the Giant Mountains in the north of the Czech Republic and flows through Bohemia and Germany
to the North Sea. It is 1,094 kilometres long. Its largest cities are Dresden, Magdeburg and Hamburg. In August 2002 a
flood of the Elbe destroyed many houses in Dresden, and more than 30,000 people had to leave their homes. Since then
the city has built walls and meadows that take up the water. In June 2013 the river rose again, but the damage was
much smaller than eleven years before."""
MINUTES = """\
The committee met on Tuesday at nine. Maria reported that the new printer has arrived and works. Peter asked who pays
for the paper. It was decided that every department pays for its own paper from January on. Anna will write to all
departments. Tom reported that the heating in room 204 is still broken; the landlord has promised to repair it within
two weeks. The next meeting is on the third of December."""
FENCE = "```"
TEXTS = {
    "code edit 1": f"Code:\n{FENCE}python\n{CODE}{FENCE}\n\n"
    f"The same code, with the typo in the first docstring corrected:\n{FENCE}python\n",
    "code edit 2": f"Code:\n{FENCE}python\n{CLASS}{FENCE}\n\nThe same class, with a method `size` after `is_empty`:\n"
    f"{FENCE}python\n",
    "code 1": '"""Reads a file of numbers and prints statistics."""\n\nimport sys\n\n\ndef read_numbers(path):\n',
    "code 2": "// A linked list in C with insert, remove and print.\n#include <stdio.h>\n#include <stdlib.h>\n\n",
    "summary 1": f"{ARTICLE}\n\nA summary of this text in three sentences:",
    "summary 2": f"{MINUTES}\n\nA short summary for those who were not there:",
    "answers 1": f"{ARTICLE}\n\nQuestion: Which cities lie on the Elbe, and what happened in 2002?\nAnswer:",
    "answers 2": f"{MINUTES}\n\nQuestion: What was decided, and who has to do something now?\nAnswer:",
    "story 1": "Once upon a time, in a village by the sea, there lived an old clockmaker who",
    "story 2": "The last train had left an hour ago. Clara sat on her suitcase and",
}


class Recorder(Gate):
    """Also records each call: what kind it was, what it cost, and how many tokens it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.record: list[tuple[str, float, int]] = []

    def stepped(self, spent_ns: int, turns: int, *, after_guess: bool) -> None:
        self.record += [("way back" if after_guess and not k else "step", spent_ns / turns, 1) for k in range(turns)]
        super().stepped(spent_ns, turns, after_guess=after_guess)

    def verified(self, agreeing: int, rows: int, right: int, chosen: int, spent_ns: int, **more: bool) -> None:
        kind = f"{rows} rows{' after a guess' * more['after_guess']}"
        self.record.append((kind, spent_ns, chosen))
        super().verified(agreeing, rows, right, chosen, spent_ns, **more)


def generate(llm: LLM, prompt: str, args: argparse.Namespace) -> tuple[list[int], float, float]:
    """The ids of the reply, and the wall time and processor time after its first token."""
    sampler = {"temperature": args.temp, "top_p": 0.95, "seed": 1} if args.temp else {}
    reply = llm.generate(prompt, max_new_tokens=args.n, ignore_eos=True, **sampler)
    stream = iter(reply)
    next(stream)
    start = time.perf_counter(), time.process_time()
    reply.finish()
    return reply.ids, time.perf_counter() - start[0], time.process_time() - start[1]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv", default="f32")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--out")
    args = parser.parse_args(argv)
    plain, guessing = (LLM(args.model, kv=args.kv, lookup=lookup) for lookup in (False, True))
    decoder = guessing.session.decoder
    if not isinstance(decoder, LookupDecoder):
        print(f"lookup has no effect: {guessing.model.no_verify}")
        return 1
    gate, rows, different = Recorder(), list[dict[str, Any]](), 0
    decoder.gate = gate
    records: list[list[list[tuple[str, float, int]]]] = []
    for llm in (plain, guessing):
        generate(llm, TEXTS["code edit 1"], args)
    for count in ROWS:  # compile what guesses need
        guessing.model.verify(list(range(count)), 0)
    print(f"{'text':12}  {'wall':>18}  {'processor':>18}  right/guessed  unsure  ids")
    for name, prompt in TEXTS.items():
        ratios: list[tuple[float, float]] = []
        gate.guessed = gate.accepted = gate.unsure = 0
        want: list[int] = []
        got: list[int] = []
        records.append([])
        for _ in range(args.rounds):
            want, *slow = generate(plain, prompt, args)
            gate.record = []
            got, *fast = generate(guessing, prompt, args)
            records[-1].append(gate.record)
            ratios.append((slow[0] / fast[0], slow[1] / fast[1]))
            different += want != got
        wall, cpu = ([r[i] for r in ratios] for i in (0, 1))
        row = {
            "text": name,
            "wall": [round(statistics.median(wall), 3), round(min(wall), 3), round(max(wall), 3)],
            "processor": [round(statistics.median(cpu), 3), round(min(cpu), 3), round(max(cpu), 3)],
            "guessed": gate.guessed,
            "right": gate.accepted,
            "unsure": gate.unsure,
            "same": want == got,
        }
        rows.append(row)
        spread = ["{:.2f} ({:.2f}-{:.2f})".format(*row[k]) for k in ("wall", "processor")]
        print(
            f"{name:12}  {spread[0]:>18}  {spread[1]:>18}  {gate.accepted:>5}/{gate.guessed:<7}  {gate.unsure:>6}  "
            f"{'same' if want == got else 'different'}",
            flush=True,
        )
    costs: dict[str, list[float]] = {}
    for kind, ns, _ in (call for text in records for record in text for call in record):
        costs.setdefault(kind, []).append(ns)
    usual = {kind: statistics.median(times) for kind, times in costs.items()}
    print("\nusual costs in steps: " + ", ".join(f"{kind} {ns / usual['step']:.2f}" for kind, ns in usual.items()))
    print("speed by the usual cost of each call:")
    for row, text in zip(rows, records, strict=True):
        speeds = [sum(n for *_, n in record) / sum(usual[k] / usual["step"] for k, *_ in record) for record in text]
        row["work"] = [round(f(speeds), 3) for f in (statistics.median, min, max)]
        print(f"{row['text']:12}  {'{:.2f} ({:.2f}-{:.2f})'.format(*row['work']):>18}")
    if args.out:
        Path(args.out).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
