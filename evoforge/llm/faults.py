"""What went wrong with a request, read off the exception that litellm made of it.

litellm dresses up what happened: a body that is no completion and a broken connection both arrive as
``InternalServerError`` with status 500, and no header of the provider's answer is left. What really
happened is in the exceptions behind it, so those are read first.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evoforge.llm.bodies import Reported

__all__ = ["Fault", "FaultKind", "read_fault"]


class FaultKind(StrEnum):
    """What to do about it."""

    AGAIN = "again"
    REJECTED = "rejected"
    REFUSED = "refused"
    TOO_LONG = "too long"
    FAILED = "failed"


@dataclass(frozen=True)
class Fault:
    """`unsure`: the provider may have worked, and counted, all the same."""

    kind: FaultKind
    message: str
    retry_after_s: float = 0.0
    unsure: bool = False


_NOT_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}
_LOCAL_REJECTIONS = {"AuthenticationError", "NotFoundError", "BadRequestError", "PermissionDeniedError"}
_POLICY = {"content_policy_violation", "content_filter"}
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|max(?:imum)? context"
    r"|(?:prompt|input|request) (?:is )?too (?:long|large)|exceeds? the maximum number of tokens|max_model_len"
    r"|maximum model length|range of input length|number of tokens in the prompt|reduce the length of the",
    re.I,
)
_MEANT: tuple[tuple[int, str], ...] = (
    (402, r"insufficient[_ ](?:quota|balance|credit|funds)|billing|out of credit"),
    (503, r"rate[_ -]?limit|too many requests|throttl|overload|capacity|unavailable|try again|timed? ?out|upstream"),
    (401, r"api[_ -]?key|unauthori[sz]ed|authenticat|invalid token"),
    (404, r"model[_ ]not[_ ]found|model .{0,100}(?:does not exist|not found)|(?:unknown|no such) model"),
)
"""What an error says that comes without a status of its own → the status that says the same; the first counts."""


def read_fault(error: BaseException) -> Fault:
    """Never raises; an exception that nobody foresaw is FAILED, and unsure."""
    links = list(_chain(error))
    names = {base.__name__ for link in links for base in type(link).__mro__}
    reported = next((found for link in links if (found := getattr(link, "reported", None)) is not None), None)
    if isinstance(reported, Reported):
        return _of_report(reported, names)
    # litellm's own exceptions carry a response that no server sent.
    answered = [link for link in links if _status(link) and not type(link).__module__.startswith("litellm")]
    if answered:
        text = _said(answered) or str(links[0])
        status, said = _status(answered[0]), _line(_inside(text) or text)
        codes = {str(code) for link in answered if (code := getattr(link, "code", None))}
        return _of_status(status, f"{status}", said, codes, names, _wait(answered))
    if names & _NOT_SENT:
        return Fault(FaultKind.AGAIN, "the server cannot be reached")
    if "TooLongError" in names:
        return Fault(FaultKind.FAILED, "the answer is longer than any completion", unsure=True)
    if "APITimeoutError" in names or "TimeoutException" in names or "Timeout" in names:
        return Fault(FaultKind.AGAIN, "no answer in time", unsure=True)
    if names & {"APIConnectionError", "TransportError"}:
        return Fault(FaultKind.AGAIN, "the connection broke before the answer came", unsure=True)
    if {base.__name__ for base in type(error).__mro__} & _LOCAL_REJECTIONS:
        return Fault(FaultKind.REJECTED, f"litellm refuses the request: {_line(str(error))}")
    return Fault(FaultKind.FAILED, "the server's answer is no chat completion", unsure=True)


def _of_report(reported: Reported, names: set[str]) -> Fault:
    """An error that came with status 200: what its code means, else what it says."""
    said, codes = _line(reported.said), set(reported.codes)
    words = " ".join((*reported.codes, said))
    numbers = [int(code) for code in reported.codes if re.fullmatch(r"[45]\d\d", code)]
    meant = next((status for status, pattern in _MEANT if re.search(pattern, words, re.I)), 0)
    status = numbers[0] if numbers else 400 if _TOO_LONG.search(words) else meant
    if not status and not codes & _POLICY:
        return Fault(FaultKind.FAILED, f"the server answered with an error: {said}", unsure=True)
    return _of_status(status or 400, "200, with an error in it", said, codes, names, 0.0)


def _of_status(status: int, shown: str, said: str, codes: set[str], names: set[str], wait_s: float) -> Fault:
    if 300 <= status < 400:
        return Fault(
            FaultKind.REJECTED, f"the server sends the prompt elsewhere ({shown}); if that is right, name that address"
        )
    if status < 400:
        return Fault(FaultKind.FAILED, "the server's answer is no chat completion", unsure=True)
    if status == 429 and "insufficient_quota" in codes:
        return Fault(FaultKind.REJECTED, f"the quota is used up ({shown}): {said}")
    known = "ContextWindowExceededError" in names or "context_length_exceeded" in codes
    if status == 413 or ((status in (400, 422) or status >= 500) and (known or _TOO_LONG.search(said))):
        return Fault(FaultKind.TOO_LONG, f"the prompt is too long for the model ({shown}): {said}")
    if status in (408, 409, 425, 429) or status >= 500:
        # A gateway's time is up (504): the model behind it may be writing still.
        return Fault(FaultKind.AGAIN, f"the server answered {shown}: {said}", wait_s, status in (408, 504))
    if codes & _POLICY or "ContentPolicyViolationError" in names:
        return Fault(FaultKind.REFUSED, f"the provider refuses the prompt ({shown}): {said}")
    meaning = {401: "the key is refused", 402: "no credit is left", 403: "the key may not use it", 404: "unknown model"}
    return Fault(FaultKind.REJECTED, f"{meaning.get(status, 'the request is refused')} ({shown}): {said}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those behind it."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _response(link: BaseException) -> Any:
    try:
        return getattr(link, "response", None)
    except RuntimeError:  # httpx raises where there is none
        return None


def _status(link: BaseException) -> int:
    status = getattr(_response(link), "status_code", None)
    return status if isinstance(status, int) else 0


def _said(answered: list[BaseException]) -> str:
    """What the server says: its error's message, or the error where that is a text."""
    for link in answered:
        body = getattr(link, "body", None)
        for said in (body.get("message"), body.get("detail")) if isinstance(body, dict) else (body,):
            if isinstance(said, str) and said.strip():
                return said
    return next((said for link in answered if isinstance(said := getattr(link, "message", None), str)), "")


def _inside(text: str) -> str:
    """The message of an error in JSON that litellm wrapped up in words of its own; empty where there is none."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text[max(text.find("{"), 0) :])
        said = found["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return said if isinstance(said, str) else ""


def _line(text: str) -> str:
    """One printable line. Not cut to size here: half a key could not be told from a word."""
    line = " ".join(text.split())
    return "".join(sign if sign.isprintable() else "?" for sign in line)[:5000]


def _wait(answered: list[BaseException]) -> float:
    """Seconds that the provider asks to wait, as a number or a date; 0: it does not say."""
    for link in answered:
        value = _response(link).headers.get("retry-after")
        if value is None:
            continue
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
        if not math.isnan(seconds):  # infinity is what a number too large for a float reads as
            return max(0.0, seconds)
    return 0.0
