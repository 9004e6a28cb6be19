"""What one call of a model was, and what it cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Call", "Outcome"]


class Outcome(StrEnum):
    """How a call ended. Only OK and TRUNCATED carry a text to read."""

    OK = "OK"
    TRUNCATED = "TRUNCATED"  # the limit of tokens came first
    REFUSED = "REFUSED"
    EMPTY = "EMPTY"
    REJECTED = "REJECTED"  # the key, the model's name or the request: no repetition helps
    TOO_LONG = "TOO_LONG"  # the prompt, for the model's context
    FAILED = "FAILED"  # no reply after all attempts, or one that is no completion


@dataclass(frozen=True)
class Call:
    """A call as it is stored, enough to replay it.

    `ticket` and `meta_prompt` are None where no proposal asked (prompt evolution). `cached_tokens` are among
    `prompt_tokens`. `retries` counts requests beyond the first. `unsure_usd` and `unsure_tokens` are
    the most that attempts may have cost whose end nobody heard (timeouts, broken connections);
    they are in neither `usd` nor the other counts.

    Raises:
        ValueError: a number that is negative or not finite, or more cached tokens than prompt tokens.
    """

    ticket: int | None
    purpose: str
    model: str
    prompt_hash: str
    system: str
    user: str
    reply: str
    outcome: Outcome
    reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    usd: float
    latency_s: float
    retries: int = 0
    unsure_usd: float = 0.0
    unsure_tokens: int = 0
    meta_prompt: str | None = None

    def __post_init__(self) -> None:
        for name in (
            "prompt_tokens", "cached_tokens", "completion_tokens", "usd", "latency_s",
            "retries", "unsure_usd", "unsure_tokens",
        ):  # fmt: skip
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"a call's {name} must be zero or more, got {value!r}")
        if self.cached_tokens > self.prompt_tokens:
            raise ValueError(
                f"a call has at most its {self.prompt_tokens} prompt tokens cached, got {self.cached_tokens}"
            )
