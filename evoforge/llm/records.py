"""What a model is asked, what it answers, and the protocol between the two."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from evoforge.core import Call, Outcome

__all__ = ["BEYOND_BELIEF", "Client", "Reply", "Request", "Usage", "call_of", "estimate_tokens", "reply_of"]

BEYOND_BELIEF = 10
"""A count so many times the most that a request can take is none: it would end a campaign by one reply."""
_LONGEST_COMPLETION = 131_072
"""Tokens that a model may well have written and thought, whatever it was asked for."""


@dataclass(frozen=True)
class Request:
    """One question to one model.

    `system` is the part that stays the same from call to call, so that providers can cache it.
    `purpose` names the emitter that asks, or ``evolve``. `attempt` tells repetitions of one question
    apart. `ticket` says whose proposal it is for, `meta_prompt` which version asks. `again` is asked before the
    question is put once more, with whether the attempt before may have cost something. `longest` is the longest
    completion that the model has been booked for, whatever it was asked for. Like `purpose` these are no part of the
    question.
    """

    model: str
    system: str
    user: str
    purpose: str
    max_tokens: int = 8192
    temperature: float = 0.7
    attempt: int = 0
    ticket: int | None = None
    meta_prompt: str | None = None
    again: Callable[[bool], bool] = field(default=lambda unsure: True, compare=False, repr=False)
    longest: int = field(default=0, compare=False, repr=False)

    @cached_property
    def prompt_hash(self) -> str:
        """64 hex digits: sha256 over model, texts, max_tokens, temperature and attempt."""
        key = [self.model, self.system, self.user, self.max_tokens, self.temperature, self.attempt]
        return hashlib.sha256(json.dumps(key).encode()).hexdigest()

    @property
    def most_prompt_tokens(self) -> int:
        """What to reserve for the prompt: a token per two bytes, where code takes three to four."""
        return -(-_size(self.system + self.user) // 2) + 64

    @property
    def most_completion_tokens(self) -> int:
        """What to reserve for the reply."""
        return max(self.max_tokens, self.longest)

    @property
    def believable_tokens(self) -> int:
        """The longest reply that a server is believed to count, whatever it was asked for."""
        return max(BEYOND_BELIEF * self.max_tokens, _LONGEST_COMPLETION)

    @property
    def most_tokens(self) -> int:
        """The most that one attempt can take."""
        return self.most_prompt_tokens + self.most_completion_tokens


@dataclass(frozen=True)
class Usage:
    """Tokens as the provider counts them. `cached_tokens` are among `prompt_tokens`.

    Raises:
        ValueError: a count below zero, or more cached than prompt tokens.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.cached_tokens <= self.prompt_tokens or self.completion_tokens < 0:
            raise ValueError(f"expected counts with cached among prompt tokens, got {self}")

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Reply:
    """How a call ended. `text` is empty unless the outcome is OK, TRUNCATED or REFUSED.

    `usd` and `usage` are what the provider counted. `unsure_usd` and `unsure_tokens` are the most
    that attempts may have cost whose end nobody heard; caps count them, the other numbers do not.
    `retries` are requests beyond the first.
    """

    text: str
    outcome: Outcome
    usage: Usage
    usd: float
    latency_s: float
    model: str
    reason: str = ""
    retries: int = 0
    unsure_usd: float = 0.0
    unsure_tokens: int = 0


class Client(Protocol):
    """Anything that answers. Safe to use from several threads."""

    def complete(self, request: Request) -> Reply:
        """One answer; what goes wrong on the way is an outcome, with its cost.

        Raises:
            ModelRejectedError: no repetition helps (key, name, quota, malformed request).
            BudgetSpentError: from a client that keeps a ledger.
        """
        ...


def estimate_tokens(text: str) -> int:
    """For a reply whose provider counted nothing: a token per three bytes."""
    return -(-_size(text) // 3)


def call_of(request: Request, reply: Reply) -> Call:
    """The record of a call."""
    return Call(
        ticket=request.ticket,
        meta_prompt=request.meta_prompt,
        purpose=request.purpose,
        model=request.model,
        prompt_hash=request.prompt_hash,
        system=request.system,
        user=request.user,
        reply=reply.text,
        outcome=reply.outcome,
        reason=reply.reason,
        prompt_tokens=reply.usage.prompt_tokens,
        cached_tokens=reply.usage.cached_tokens,
        completion_tokens=reply.usage.completion_tokens,
        usd=reply.usd,
        latency_s=reply.latency_s,
        retries=reply.retries,
        unsure_usd=reply.unsure_usd,
        unsure_tokens=reply.unsure_tokens,
    )


def reply_of(call: Call) -> Reply:
    """The reply that a recorded call got, with the cost that it had then."""
    return Reply(
        text=call.reply,
        outcome=call.outcome,
        usage=Usage(call.prompt_tokens, call.cached_tokens, call.completion_tokens),
        usd=call.usd,
        latency_s=call.latency_s,
        model=call.model,
        reason=call.reason,
        retries=call.retries,
        unsure_usd=call.unsure_usd,
        unsure_tokens=call.unsure_tokens,
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))
