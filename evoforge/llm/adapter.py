"""Models through litellm: every provider, and every server that speaks OpenAI's protocol."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any

from evoforge.core import Outcome, redact
from evoforge.errors import ModelRejectedError, UsageError
from evoforge.llm.faults import Fault, FaultKind, read_fault
from evoforge.llm.litellm_import import import_litellm
from evoforge.llm.records import BEYOND_BELIEF, Reply, Request, Usage, estimate_tokens
from evoforge.llm.specs import ModelSpec, Prices, prices_of

__all__ = ["LiteLLMClient"]

_LONGEST_WAIT_S = 120.0
"""A provider that asks for more is not waited for: the call has failed."""
_UNSURE_ATTEMPTS = 2
"""Attempts that may cost without an answer: with more, a dead line would empty the purse."""
_LONGEST_REPLY = 400_000
_LONGEST_REASON = 300
_WISHES = {
    "one message": r"roles (?:must|should be) alternat|system (?:role|message)s? (?:is |are )?not supported"
    r"|only user and assistant roles|developer instruction is not enabled",
    "max_completion_tokens": r"use '?max_completion_tokens",
    "no temperature": r"temperature'? (?:does not support|is not supported)",
    "a stream": r"only supports? stream|stream (?:must be|is) (?:set to true|required)|non-?streaming",
}
"""What a server wants to be asked otherwise, by what it says else. The first has no place for a system message."""
_ONLY_THOUGHTS = "the model thought and wrote nothing; with a larger max_tokens it may"
_ONLY_A_CALL = "the model called a tool, of which it was offered none, and wrote no text"
_ENDS = {
    FaultKind.REFUSED: Outcome.REFUSED,
    FaultKind.REJECTED: Outcome.REJECTED,
    FaultKind.TOO_LONG: Outcome.TOO_LONG,
}


class _Failed(Exception):
    """`again`: another attempt may mend it."""

    def __init__(self, fault: Fault, again: bool) -> None:
        super().__init__(fault.message)
        self.fault, self.again = fault, again


@dataclass
class _Tries:
    """What the attempts of one call have come to; `fault` is the last one's."""

    made: int = 0
    unsure: int = 0
    fault: Fault | None = None


class LiteLLMClient:
    """A `Client` for the given models. Keys are read from the environment at each call and not kept.

    429, 5xx, timeouts and connections that fail are tried again, up to `attempts` in all, after a
    random wait that doubles, and not before a ``Retry-After`` is over; none begins after `until` (as
    `time.monotonic`) or once `stopping` is set, since nobody has a use for its answer; a call that was not begun by
    then raises `CancelledError`. Attempts that may have cost something unseen end after two. litellm's own repetitions
    are off: the spend would be booked once and made twice. A server that says so is asked for a stream,
    with `max_completion_tokens`, without a temperature or in one message, with no system's, from then on.

    Raises:
        UsageError: an unknown price or provider, a key's variable that is not set, a server given
            by an environment variable, a model named twice.
        MissingToolError: litellm is not there.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        *,
        attempts: int = 5,
        until: float = math.inf,
        stopping: threading.Event | None = None,
        sleep: Callable[[float], None] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._specs = {spec.model: spec for spec in specs}
        if len(self._specs) != len(specs):
            raise UsageError("a model is named twice; give each one entry")
        for spec in specs:
            prices_of(spec)
            _require_provider(spec, self._environ)
        self._attempts, self._until, self._stopping = attempts, until, stopping or threading.Event()
        self._sleep = sleep
        self._wishes: dict[str, set[str]] = {spec.model: set() for spec in specs}

    def complete(self, request: Request) -> Reply:
        spec = self._specs.get(request.model)
        if spec is None:
            raise UsageError(f"expected one of {', '.join(self._specs) or 'no models'}, got {request.model!r}")
        if self._over():
            raise CancelledError(f"{request.model} is asked no more: whoever asks is closing, or its time is up")
        prices, tries, start = prices_of(spec), _Tries(), time.monotonic()
        try:
            reply = self._retrying(request, tries)(self._attempt, spec, prices, request, tries)
        except _Failed as failed:
            fault = failed.fault
            reply = Reply(
                "",
                _ENDS.get(fault.kind, Outcome.FAILED),
                Usage(),
                0.0,
                0.0,
                request.model,
                self._redacted(spec, fault.message),
            )
        reply = replace(
            reply,
            latency_s=time.monotonic() - start,
            retries=tries.made - 1,
            unsure_usd=tries.unsure * prices.most_usd(request),
            unsure_tokens=tries.unsure * request.most_tokens,
        )
        if reply.outcome is Outcome.REJECTED:
            raise ModelRejectedError(f"{request.model}: {reply.reason}; {_mend(spec)}", reply)
        return reply

    def _over(self) -> bool:
        return self._stopping.is_set() or time.monotonic() > self._until

    def _retrying(self, request: Request, tries: _Tries) -> Callable[..., Reply]:
        import tenacity

        def fault(state: tenacity.RetryCallState) -> Fault:
            error = state.outcome.exception() if state.outcome is not None else None
            assert isinstance(error, _Failed)
            return error.fault

        jitter = tenacity.wait_random_exponential(multiplier=1.0, max=60.0)
        return tenacity.Retrying(
            sleep=self._sleep or tenacity.sleep_using_event(self._stopping),
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, _Failed) and error.again),
            stop=lambda state: (
                tries.made >= self._attempts
                or tries.unsure >= _UNSURE_ATTEMPTS
                or self._stopping.is_set()
                or fault(state).retry_after_s > _LONGEST_WAIT_S
                or time.monotonic() + state.upcoming_sleep > self._until
                or not request.again(fault(state).unsure)
            ),
            wait=lambda state: fault(state).retry_after_s + jitter(state),
            reraise=True,
        )

    def _attempt(self, spec: ModelSpec, prices: Prices, request: Request, tries: _Tries) -> Reply:
        from evoforge.llm.guard import RepeatedError, unrepeated

        if tries.fault is not None and self._over():  # by now: it was waited for
            raise _Failed(tries.fault, again=False)
        litellm = import_litellm()
        tries.made += 1
        wishes = frozenset(self._wishes[spec.model])
        try:
            with unrepeated():
                answer = litellm.completion(
                    model=spec.model,
                    **_asked(request, wishes),
                    timeout=spec.timeout_s,
                    api_base=spec.api_base,
                    api_key=_key(spec, self._environ),
                    num_retries=0,
                    max_retries=0,
                    drop_params=True,  # some models take no temperature
                )
            reply = _read(answer, prices, request)
            key = _key(spec, self._environ)
            return replace(reply, text=reply.text.replace(key, "[key]")) if key and len(key) >= 8 else reply
        except (Exception, RepeatedError) as error:
            fault = read_fault(error)
        # Outside the handler, so that no traceback holds what litellm was called with.
        tries.unsure += fault.unsure
        tries.fault, again = fault, fault.kind is FaultKind.AGAIN
        if new := {wish for wish, said in _WISHES.items() if re.search(said, fault.message, re.I)} - wishes:
            self._wishes[spec.model] |= new
            again = True
        raise _Failed(fault, again)

    def _redacted(self, spec: ModelSpec, message: str) -> str:
        return redact(message, [_key(spec, self._environ) or ""], self._environ)[:_LONGEST_REASON]


def _key(spec: ModelSpec, environ: Mapping[str, str]) -> str | None:
    """None lets litellm take the provider's usual variable, which no server of another's must see."""
    if spec.api_key_env is not None:
        return environ.get(spec.api_key_env)
    return None if spec.api_base is None else "none"


def _asked(request: Request, wishes: Set[str]) -> dict[str, Any]:
    """The arguments that say what is asked."""
    if "one message" in wishes or not request.system:
        messages = [{"role": "user", "content": "\n\n".join(filter(None, (request.system, request.user)))}]
    else:
        messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
    most = "max_completion_tokens" if "max_completion_tokens" in wishes else "max_tokens"
    asked: dict[str, Any] = {"messages": messages, most: request.max_tokens}
    if "no temperature" not in wishes:
        asked["temperature"] = request.temperature
    if "a stream" in wishes:  # past litellm, which is to read the completion that the guard makes of it
        asked["extra_body"] = {"stream": True, "stream_options": {"include_usage": True}}
    return asked


def _mend(spec: ModelSpec) -> str:
    name = f"the variable {spec.api_key_env}" if spec.api_key_env else "the key's variable"
    return f"check the model's name, its api_base and {name}"


def _require_provider(spec: ModelSpec, environ: Mapping[str, str]) -> None:
    litellm = import_litellm()
    try:
        provider = str(litellm.get_llm_provider(spec.model, api_base=spec.api_base)[1])
    except Exception:
        provider = ""
    if not provider:
        raise UsageError(
            f"litellm knows no provider of {spec.model}; name it <provider>/<model>, or openai/<name> with api_base"
        )
    if spec.api_key_env is not None and not environ.get(spec.api_key_env):
        name = redact(spec.api_key_env, (), environ)
        raise UsageError(f"{spec.model} needs its key in {name}, which is not set; export it")
    if spec.api_base is not None:
        return
    for name in (f"{provider.upper()}_API_BASE", f"{provider.upper()}_BASE_URL"):
        if environ.get(name):
            raise UsageError(f"{name} would send {spec.model} elsewhere; unset it, or make it the model's api_base")
    usual = f"{provider.upper()}_API_KEY"
    if spec.api_key_env is None and not environ.get(usual):
        missing = litellm.validate_environment(model=spec.model).get("missing_keys", [])
        if missing == [usual]:
            raise UsageError(f"{spec.model} needs its key in {usual}, which is not set; export it")


def _read(answer: Any, prices: Prices, request: Request) -> Reply:
    """Raises whatever it likes for an answer of another shape."""
    usage, reason = _usage(answer, request), ""
    if usage is not None and not answer.choices:
        return Reply("", Outcome.EMPTY, usage, prices.usd(usage), 0.0, request.model, "the server gave no choice")
    choice = answer.choices[0]
    message = choice.message
    text = message.content or ""
    refusal = (getattr(message, "provider_specific_fields", None) or {}).get("refusal")
    thoughts = getattr(message, "reasoning_content", None) or ""
    written = estimate_tokens(f"{thoughts}{text or refusal or ''}")
    if usage is None:
        usage = Usage(estimate_tokens(request.system + request.user), 0, written)
        reason = "the server counted no tokens, or more than there can be; they are estimated"
    elif usage.completion_tokens == 0 and written:
        usage = replace(usage, completion_tokens=written)
        reason = "the server counted no tokens of the reply; they are estimated"
    if choice.finish_reason == "content_filter" or refusal:
        outcome, text = Outcome.REFUSED, text or str(refusal or "")
    elif not text.strip():
        empty = _ONLY_THOUGHTS if thoughts else "the reply holds no text"
        called = choice.finish_reason in ("tool_calls", "function_call")
        outcome, reason = Outcome.EMPTY, reason or (_ONLY_A_CALL if called else empty)
    elif choice.finish_reason == "length" or len(text) > _LONGEST_REPLY:
        outcome = Outcome.TRUNCATED
    else:
        outcome = Outcome.OK
    return Reply(text[:_LONGEST_REPLY], outcome, usage, prices.usd(usage), 0.0, request.model, reason)


def _usage(answer: Any, request: Request) -> Usage | None:
    """None where the provider counted nothing that can be. What a reply has bytes for can be, however long it is."""
    found = getattr(answer, "usage", None)
    prompt, completion = getattr(found, "prompt_tokens", None), getattr(found, "completion_tokens", None)
    if not isinstance(prompt, int) or not isinstance(completion, int) or prompt <= 0 or completion < 0:
        return None
    most = max(request.believable_tokens, *(len(str(one.message.content)) for one in answer.choices or ()), 0)
    if prompt > BEYOND_BELIEF * request.most_prompt_tokens or completion > most:
        return None
    cached = max(_count(getattr(found, "prompt_tokens_details", None), "cached_tokens"), 0)
    apart = max(_count(found, "total_tokens") - prompt - completion, 0)
    if 0 < apart == cached:  # a proxy that counts what it read from a cache beside the prompt
        return Usage(prompt + cached, cached, completion)
    thoughts = _count(getattr(found, "completion_tokens_details", None), "reasoning_tokens")
    # Some count thoughts beside the completion, and bill them as one. litellm adds them up for providers that it knows.
    whole = completion + max(apart, thoughts if thoughts > completion else 0)
    return Usage(prompt, min(cached, prompt), whole if whole <= most else completion)


def _count(found: Any, name: str) -> int:
    """0 where it is none."""
    count = getattr(found, name, None)
    return count if isinstance(count, int) else 0
