#!/usr/bin/env python3
"""Run EleutherAI's harness on local task files, with the bundled model, and compare its figures with plain numpy.

    python3 -m venv ev && ev/bin/pip install -e .[eval]
    ev/bin/python tests/tools/harness.py

Needs no network: a task of each kind is written into a folder, with its data. Prints a row per task.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval
from lm_eval.tasks import TaskManager

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from webgpu_run.eval import HarnessLM  # noqa: E402
from webgpu_run.runtime.open import load, open_program  # noqa: E402

STARTS = (
    "Once upon a time there was a little",
    "One day the fox found a",
    "The girl was very",
    '"I am hungry," said the',
)
ENDS = (" girl", " quickly", " map", ' bear. "Then')
STORY = " ".join(["Once upon a time there was a little girl named Marie. She lived in a cottage near the wood."] * 50)
COMMON = "dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {data}\ntest_split: test\n"
TASKS = {
    "local_choice": 'output_type: multiple_choice\ndoc_to_text: "{{start}}"\ndoc_to_choice: "{{ends}}"\n'
    'doc_to_target: 0\ntarget_delimiter: ""\nmetric_list:\n  - metric: acc\n',
    "local_rolling": 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: "{{story}}"\n'
    "metric_list:\n  - metric: word_perplexity\n",
    "local_generate": 'output_type: generate_until\ndoc_to_text: "{{start}}"\ndoc_to_target: "{{reply}}"\n'
    'generation_kwargs:\n  until: ["."]\n  max_gen_toks: 24\nmetric_list:\n  - metric: exact_match\n',
}


def main() -> None:
    lm = HarnessLM()
    plain = load(open_program(None).path)  # returns the last row only

    def log_p(before: list[int], after: list[int]) -> float:
        """By calls with one token each."""
        ids, total = before + after, 0.0
        for at, (token, following) in enumerate(itertools.pairwise(ids)):
            row = plain.run([np.array([[token]]), np.array([at])])[0].reshape(-1).astype(np.float64)
            if at >= len(before) - 1:
                total += row[following] - row.max() - math.log(np.exp(row - row.max()).sum())
        return total

    tokenizer = lm.answers.tokenizer
    replies = [str(lm.answers.llm.generate(s, max_new_tokens=24, stop=["."])) for s in STARTS]
    docs = [{"start": s, "ends": ENDS, "story": STORY, "reply": r} for s, r in zip(STARTS, replies, strict=True)]
    scores = [
        [
            log_p(tokenizer.encode_prompt(s), tokenizer.encode_prompt(s + e)[len(tokenizer.encode_prompt(s)) :])
            for e in ENDS
        ]
        for s in STARTS
    ]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.jsonl")
        data.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
        for name, text in TASKS.items():
            Path(folder, f"{name}.yaml").write_text(f"task: {name}\n{COMMON.format(data=data)}{text}")
        manager = TaskManager(include_path=folder, include_defaults=False)
        ran = lm_eval.simple_evaluate(lm, tasks=list(TASKS), task_manager=manager, log_samples=True)
    results, samples = ran["results"], ran["samples"]
    got = [[float(r[0]) for r in s["filtered_resps"]] for s in samples["local_choice"]]
    worst = float(np.abs(np.array(got) - scores).max())
    share = float(np.mean([int(np.argmax(row)) == 0 for row in scores]))
    ids, room = tokenizer.encode_plain(STORY), lm.answers.capacity
    rest = len(ids) - room
    whole = log_p([lm.answers.prefix], ids[:room]) + log_p(ids[-room - 1 : -rest], ids[-rest:])
    rolling = results["local_rolling"]["word_perplexity,none"]
    wanted = math.exp(-whole / len(STORY.split()))
    choice, match = results["local_choice"]["acc,none"], results["local_generate"]["exact_match,none"]
    print(f"choice    acc {choice:.2f}, numpy {share:.2f}; log p differ by at most {worst:.1e}")
    print(f"rolling   {len(ids)} tokens in a context of {room}: word perplexity {rolling:.4f}, numpy {wanted:.4f}")
    print(f"generate  exact match {match:.2f}, wanted 1.00")
    print(f"requests  {sum(len(s['resps']) for task in samples.values() for s in task)}")
    assert worst < 5e-3
    assert (choice, match) == (share, 1)
    assert abs(rolling / wanted - 1) < 1e-4


if __name__ == "__main__":
    main()
