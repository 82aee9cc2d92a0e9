"""Perplexity, and how far the probabilities of two models are apart. The definitions are those of llama-perplexity."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..shapes import Array
from .windows import TextWindow

WORST = 5  # positions that are shown as text


@dataclass(frozen=True, slots=True)
class Position:
    """A token of the text that two models expect differently."""

    divergence: float
    window: TextWindow
    row: int
    probability: float
    base_probability: float
    top: int  # the likeliest token
    base_top: int

    @property
    def at(self) -> int:
        """Index of the token in the window."""
        return self.window.first + 1 + self.row


@dataclass(slots=True)
class Scores:
    """What was measured of the scored tokens so far; with a base, also the comparison with it."""

    losses: list[float] = field(default_factory=list)  # -log p of each token
    base_losses: list[float] = field(default_factory=list)
    divergences: list[float] = field(default_factory=list)  # KL(base || model) at each token
    shifts: list[float] = field(default_factory=list)  # p - p_base of each token
    same_tops: list[bool] = field(default_factory=list)
    worst: list[Position] = field(default_factory=list)

    def add(self, window: TextWindow, log_probs: Array, base: Array | None = None) -> None:
        """Score one window by the log-probabilities of a model and, if there is one, of its base."""
        rows, targets = np.arange(len(log_probs)), window.targets
        own = log_probs[rows, targets].astype(np.float64)
        self.losses += (-own).tolist()
        if base is None:
            return
        theirs = base[rows, targets].astype(np.float64)
        divergences = np.einsum("rv,rv->r", np.exp(base), base - log_probs, dtype=np.float64)
        tops, base_tops = log_probs.argmax(-1), base.argmax(-1)
        self.base_losses += (-theirs).tolist()
        self.divergences += divergences.tolist()
        self.shifts += (np.exp(own) - np.exp(theirs)).tolist()
        self.same_tops += (tops == base_tops).tolist()
        for row in np.argsort(-divergences)[:WORST].tolist():
            p, q = math.exp(own[row]), math.exp(theirs[row])
            self.worst.append(Position(float(divergences[row]), window, row, p, q, int(tops[row]), int(base_tops[row])))
        self.worst = sorted(self.worst, key=lambda position: -position.divergence)[:WORST]

    @property
    def perplexity(self) -> float:
        return math.exp(np.mean(self.losses))

    @property
    def perplexity_error(self) -> float:
        """One standard error of the perplexity, from the spread of the losses."""
        return self.perplexity * _error(self.losses)

    def comparison(self) -> dict[str, float]:
        """The figures that need a base."""
        divergences, same = np.array(self.divergences), float(np.mean(self.same_tops))
        ratios = np.array(self.losses) - np.array(self.base_losses)
        ratio = math.exp(ratios.mean())
        return {
            "base_perplexity": math.exp(np.mean(self.base_losses)),
            "perplexity_ratio": ratio,
            "perplexity_ratio_error": ratio * _error(ratios.tolist()),
            "kl_mean": float(divergences.mean()),
            "kl_mean_error": _error(self.divergences),
            "kl_median": float(np.median(divergences)),
            "kl_p999": float(np.quantile(divergences, 0.999)),
            "kl_max": float(divergences.max()),
            "same_top": same,
            "same_top_error": math.sqrt(same * (1 - same) / max(1, len(divergences) - 1)),
            "rms_dp": math.sqrt(np.mean(np.square(self.shifts))),
        }


def _error(samples: list[float]) -> float:
    """The standard error of the mean."""
    return float(np.std(samples) / math.sqrt(max(1, len(samples) - 1)))
