"""How far apart two meta-prompts are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from evoforge.core import MetaPrompt

__all__ = ["prompt_distance"]

_RANGE = math.log2(10.0)  # weights lie within a factor of ten of 1


def prompt_distance(a: MetaPrompt, b: MetaPrompt) -> float:
    """0 (the same) to 1: the mean of the strategies' distance and the sections' distance.

    Strategies: the mean over every key that either names of the absolute log ratio of the weights
    (absent: 1), a factor of ten being 1. Sections: the mean over headings of one minus the shared
    share of their words (Jaccard).
    """
    tables = [(getattr(a.strategy, name), getattr(b.strategy, name)) for name in ("operators", "stress", "priors")]
    gaps = [gap for left, right in tables for gap in _gaps(left, right)]
    strategy = sum(gaps) / len(gaps) if gaps else 0.0
    headings = dict.fromkeys((*a.sections, *b.sections))
    texts = [_apart(a.sections.get(name, ""), b.sections.get(name, "")) for name in headings]
    return (strategy + (sum(texts) / len(texts) if texts else 0.0)) / 2


def _gaps(a: Mapping[str, float], b: Mapping[str, float]) -> list[float]:
    return [min(abs(_log(a.get(key, 1.0)) - _log(b.get(key, 1.0))) / _RANGE, 1.0) for key in sorted({*a, *b})]


def _log(weight: float) -> float:
    return math.log2(min(max(weight, 0.1), 10.0))


def _apart(a: str, b: str) -> float:
    left, right = (set(re.findall(r"\w+", text.lower())) for text in (a, b))
    return 1.0 - len(left & right) / len(left | right) if left | right else 0.0
