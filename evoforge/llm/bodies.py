"""A server's answer as litellm can read it: many speak OpenAI's protocol, and most of them bend it.

litellm fails on a field of an odd type even where nobody reads it, so only what is read is handed on. Texts in parts
become one text, a stream that nobody asked for becomes the completion that it adds up to, and an error that comes with
a status of success is told apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Reported", "read_body"]

_COUNT = re.compile(r"-?\d{1,15}(?:\.0)?")
_OTHER_NAMES = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
_STOPS = (
    "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "tool_calls", "function_call", "tool_use",
)  # fmt: skip
_FILTERS = (
    "content_filtered", "refusal", "error_toxic", "safety", "recitation", "language", "blocklist", "prohibited_content",
    "spii", "sensitive", "guardrail_intervened",
)  # fmt: skip


@dataclass(frozen=True)
class Reported:
    """An error that a server reports with status 200. `codes` are its code and type, the status that it means too."""

    said: str
    codes: tuple[str, ...]


def read_body(body: bytes) -> bytes | Reported:
    """`body` with its completion made plain; as it stands where it is neither a completion nor an error."""
    try:
        return _plain(body.decode("utf-8-sig", "replace")) or body
    except RecursionError:  # nested deeper than any completion
        return body


def _plain(text: str) -> bytes | Reported | None:
    try:
        found = json.loads(text)
    except ValueError:
        found = _joined(text)
    if not isinstance(found, dict):
        return None
    error = found if found.get("object") == "error" else found.get("error")
    if error and not found.get("choices"):
        return _reported(error)
    if found.get("type") == "message" and "choices" not in found:
        return json.dumps(_message(found)).encode()
    choices = found.get("choices")
    if choices is None and found.get("object") == "chat.completion":  # other protocols count their usage, too
        choices = []
    if not isinstance(choices, list) or not all(
        isinstance(one, dict) and ("message" in one or isinstance(one.get("text"), str)) for one in choices
    ):
        return None
    plain: dict[str, Any] = {"object": "chat.completion", "choices": [_choice(one) for one in choices]}
    if isinstance(found.get("usage"), dict):
        counts = _counts(found["usage"])
        others = {ours: counts[theirs] for theirs, ours in _OTHER_NAMES.items() if theirs in counts}
        plain["usage"] = {**others, **counts}
    return json.dumps(plain).encode()


def _reported(error: object) -> Reported:
    if not isinstance(error, dict):
        return Reported(str(error), ())
    said = error.get("message")
    codes = tuple(str(code)[:100] for name in ("code", "type", "status") if (code := error.get(name)))
    return Reported(said if isinstance(said, str) else json.dumps(error), codes)


def _choice(found: Mapping[str, Any]) -> dict[str, Any]:
    message = found.get("message", {"content": found.get("text")})
    message = message if isinstance(message, dict) else {}
    called = message.get("tool_calls") or message.get("function_call")
    thought = message.get("reasoning_content") or message.get("reasoning")
    texts = {"content": _text(message.get("content")), "refusal": message.get("refusal"), "reasoning_content": thought}
    kept = {name: text for name, text in texts.items() if isinstance(text, str)}
    return {
        "index": 0,
        "message": {"role": "assistant", "content": None, **kept},
        "finish_reason": "tool_calls" if called else _end(found.get("finish_reason")),
    }


def _message(found: Mapping[str, Any]) -> dict[str, Any]:
    """An answer in Anthropic's protocol, with everything that litellm fails without."""
    content, reason, usage = found.get("content"), found.get("stop_reason"), found.get("usage")
    parts = content if isinstance(content, list) else [content]
    return {
        **{name: value for name, value in found.items() if name != "error"},
        "model": str(found.get("model") or ""),
        "content": [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "text", **part}
            for part in parts
            if isinstance(part, str | dict)
        ],
        "stop_reason": reason if reason == "tool_use" else _end(reason),
        "usage": usage if isinstance(usage, dict) else {"input_tokens": 0, "output_tokens": 0},
    }


def _end(reason: object) -> str:
    """Why a reply ended, as litellm knows it: what it doesn't know it takes for a whole reply, and logs."""
    known = reason.strip().casefold() if isinstance(reason, str) else ""
    if not known or known in _STOPS:
        return "stop"
    return "content_filter" if known in _FILTERS or known.startswith("content_filter") else "length"


def _text(content: object) -> object:
    """Of a message's parts those that are text: thoughts among them are no answer."""
    if not isinstance(content, list):
        return content
    texts = [
        part.get("text") if isinstance(part, dict) and part.get("type", "text") in ("text", "output_text") else part
        for part in content
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _counts(found: Mapping[str, Any]) -> dict[str, Any]:
    """The whole numbers in a record of usage, and in the records inside it."""
    kept: dict[str, Any] = {}
    for name, count in found.items():
        if isinstance(count, dict):
            kept[name] = _counts(count)
        elif _COUNT.fullmatch(str(count)):
            kept[name] = int(float(count))
    return kept


def _joined(text: str) -> dict[str, Any] | None:
    """What a stream of events adds up to; one that ends before it says so is cut off. None: it is no completion's."""
    events = list(_events(text))
    if not events:
        return None
    if error := next((event["error"] for event in events if event.get("error")), None):
        return {"error": error}
    listed = [found for event in events if isinstance(found := event.get("choices"), list)]
    if not listed:
        return None
    choices = [one for found in listed for one in found if isinstance(one, dict)]
    deltas = [one["delta"] for one in choices if isinstance(one.get("delta"), dict)]
    message = {}
    for name in ("content", "refusal", "reasoning_content", "reasoning"):
        parts = [part for delta in deltas if isinstance(part := _text(delta.get(name)), str)]
        message[name] = "".join(parts) if parts else None
    ends = [one["finish_reason"] for one in choices if one.get("finish_reason")]
    usages = [event["usage"] for event in events if event.get("usage")]
    return {
        "choices": [{"message": message, "finish_reason": ends[-1] if ends else "length"}],
        "usage": usages[-1] if usages else None,
    }


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.split("\n"):
        if line.startswith("data:"):
            try:
                event = json.loads(line.removeprefix("data:"))
            except ValueError:  # such as [DONE]
                continue
            if isinstance(event, dict):
                yield event
