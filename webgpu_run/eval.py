"""A model as EleutherAI's evaluation harness takes it. Needs `pip install webgpu-run[eval]`.

import lm_eval
from webgpu_run.eval import HarnessLM

results = lm_eval.simple_evaluate(HarnessLM("model.pte"), tasks=["arc_easy"])
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError as error:
    raise ImportError("webgpu_run.eval needs lm-eval: pip install webgpu-run[eval]") from error

from .bench.answers import Answers


@register_model("webgpu")
class HarnessLM(LM):  # type: ignore[misc]
    """Passes the harness's three kinds of requests to a model."""

    def __init__(
        self,
        pretrained: str | os.PathLike[str] | None = None,
        *,
        tokenizer: str | None = None,
        device: str | None = None,
        kv: str = "f32",
        **_: Any,
    ) -> None:
        """`pretrained` is a .pte file, or by default the bundled model. The harness's own settings are not used."""
        super().__init__()
        self.answers = Answers(pretrained, tokenizer=tokenizer, device=device, kv=kv)

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """log p of each continuation after its context, and whether it is the likeliest one."""
        return [self.answers.likelihood(*request.args) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """log p of each whole text, in windows as long as the context."""
        return [self.answers.rolling_likelihood(request.args[0]) for request in requests]

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """The reply to each prompt, up to one of its stop strings."""
        return [self.answers.reply(*request.args) for request in requests]
