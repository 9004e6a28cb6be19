"""What went wrong with a request, read off the exception that litellm made of it.

litellm dresses up what happened: a body that is no completion and a broken connection both arrive as
``InternalServerError`` with status 500, and no header of the provider's answer is left. What really
happened is in the exceptions behind it, so those are read first.
"""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Fault", "FaultKind", "read_fault"]


class FaultKind(StrEnum):
    """What to do about it."""

    AGAIN = "again"
    REJECTED = "rejected"
    REFUSED = "refused"
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


def read_fault(error: BaseException) -> Fault:
    """Never raises; an exception that nobody foresaw is FAILED, and unsure."""
    links = list(_chain(error))
    names = {base.__name__ for link in links for base in type(link).__mro__}
    # litellm's own exceptions carry a response that no server sent.
    answered = [link for link in links if _status(link) and not type(link).__module__.startswith("litellm")]
    if answered:
        return _of_status(_status(answered[0]), names, links, answered)
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


def _of_status(status: int, names: set[str], links: list[BaseException], answered: list[BaseException]) -> Fault:
    said = _line(_said(answered) or str(links[0]))
    codes = {str(code) for link in answered if (code := getattr(link, "code", None))}
    if 300 <= status < 400:
        return Fault(
            FaultKind.REJECTED, f"the server sends the prompt elsewhere ({status}); if that is right, name that address"
        )
    if status < 400:
        return Fault(FaultKind.FAILED, "the server's answer is no chat completion", unsure=True)
    if status == 429 and "insufficient_quota" in codes:
        return Fault(FaultKind.REJECTED, f"the quota is used up (429): {said}")
    if status in (408, 409, 425, 429) or status >= 500:
        # A gateway's time is up (504): the model behind it may be writing still.
        return Fault(FaultKind.AGAIN, f"the server answered {status}: {said}", _wait(answered), status in (408, 504))
    if codes & _POLICY or "ContentPolicyViolationError" in names:
        return Fault(FaultKind.REFUSED, f"the provider refuses the prompt ({status}): {said}")
    if status == 413 or "ContextWindowExceededError" in names or "context_length_exceeded" in codes:
        return Fault(FaultKind.FAILED, f"the prompt is too long for the model ({status}): {said}")
    meaning = {401: "the key is refused", 402: "no credit is left", 403: "the key may not use it", 404: "unknown model"}
    return Fault(FaultKind.REJECTED, f"{meaning.get(status, 'the request is refused')} ({status}): {said}")


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
    for link in answered:
        body = getattr(link, "body", None)
        if isinstance(body, dict) and isinstance(body.get("message"), str):
            return str(body["message"])
    return ""


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
            except (ValueError, TypeError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return 0.0
