"""What every request to a model goes through: no redirects, repetitions or endless answers, nobody else's headers.

httpx limits the time of each read and not that of an answer, whose headers and body a server can drip out for hours,
and reads bodies whole, however long they are. litellm follows redirects, so a server could hand the prompt on to
anybody, and after some errors of a server it sends a request again, in other words, with three attempts. The openai
package adds what variables say (organization, project, headers) whichever server it talks to, and what machine this is.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import httpx

from evoforge.llm.bodies import Reported, read_body
from evoforge.llm.specs import is_loopback

__all__ = ["Guard", "RepeatedError", "ReportedError", "TooLongError", "unrepeated"]

_MOST_BYTES = 16 << 20
_OWN_HEADERS = ("openai-organization", "openai-project")
_OWN_HOST = "api.openai.com"
_OF_THE_MACHINE = b"x-stainless-"
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")


class TooLongError(httpx.ReadError):
    """The answer is longer than any completion."""


class ReportedError(httpx.ReadError):
    """The answer has status 200 and is an error."""

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported.said)
        self.reported = reported


class RepeatedError(BaseException):
    """A request was to be sent again; `response` is what the first one got.

    No `Exception`: after one of those the openai package would wait, and send it once more.
    """

    def __init__(self, response: httpx.Response | None) -> None:
        super().__init__("the request was sent before")
        self.response = response
        self.message = "" if response is None else response.text


_SENT: ContextVar[dict[str, httpx.Response | None] | None] = ContextVar("sent", default=None)


@contextlib.contextmanager
def unrepeated() -> Iterator[None]:
    """While it lasts this thread posts to every address once; a second time raises `RepeatedError`."""
    token = _SENT.set({})
    try:
        yield
    finally:
        _SENT.reset(token)


class Guard(httpx.BaseTransport):
    """A transport that ends a request with its timeout for reads, all of it, and an answer after 16 MiB.

    What comes back is whole, unpacked and made plain (`read_body`). Each request has a connection of its own. Servers
    on this machine are asked directly, whatever proxy the environment names. `close` does nothing, for clients share
    it; `shut` closes the connections.
    """

    def __init__(self, verify: Any = True) -> None:
        # A deadline needs the socket, which is only shown as it is opened.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._direct = httpx.Client(verify=verify, trust_env=False, limits=limits)
        self._outside = httpx.Client(verify=verify, limits=limits)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        sent, address = _SENT.get(), str(request.url)
        if sent is None or request.method != "POST":
            return self._answer(request)
        if address in sent:
            raise RepeatedError(sent[address])
        sent[address] = None
        sent[address] = answer = self._answer(request)
        return answer

    def _answer(self, request: httpx.Request) -> httpx.Response:
        # A copy: the openai package reads a header that is left out back from its own.
        headers = [pair for pair in request.headers.raw if not pair[0].lower().startswith(_OF_THE_MACHINE)]
        request = httpx.Request(
            request.method, request.url, headers=headers, stream=request.stream, extensions=dict(request.extensions)
        )
        request.headers["accept-encoding"] = "identity"
        if request.url.host != _OWN_HOST:
            for name in (*_OWN_HEADERS, *_custom_headers()):
                request.headers.pop(name, None)
        client = self._direct if is_loopback(request.url.host) else self._outside
        with _deadline(request):
            answer = client.send(request, stream=True, follow_redirects=False)
            with contextlib.closing(answer):
                body = b"".join(_limited(answer))
        answer.headers.pop("location", None)
        for name in _OF_THE_BODY:
            answer.headers.pop(name, None)
        plain = read_body(body) if answer.is_success else body
        if isinstance(plain, Reported):
            raise ReportedError(plain)
        return httpx.Response(answer.status_code, headers=answer.headers, content=plain)

    def shut(self) -> None:
        self._direct.close()
        self._outside.close()


def _limited(answer: httpx.Response) -> Iterator[bytes]:
    left = _MOST_BYTES
    for part in answer.iter_bytes():
        left -= len(part)
        if left < 0:
            raise TooLongError("the answer is longer than any completion")
        yield part


@contextlib.contextmanager
def _deadline(request: httpx.Request) -> Iterator[None]:
    """Shuts the request's connection down once its time is over, whatever the server does meanwhile.

    Raises:
        httpx.ReadTimeout: it was shut down.
    """
    limit = (request.extensions.get("timeout") or {}).get("read")
    if limit is None:
        yield
        return
    opened: list[Any] = []
    over = threading.Event()

    def opens(event: str, told: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            opened.append(told["return_value"].get_extra_info("socket"))
            if over.is_set():
                shut()

    def shut() -> None:
        over.set()
        for one in opened[-1:]:
            with contextlib.suppress(OSError):
                # That of the class below: TLS's own would let another thread go on without TLS.
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    request.extensions["trace"] = opens
    timer = threading.Timer(limit, shut)
    timer.daemon = True
    timer.start()
    late = None
    try:
        yield
    except httpx.RequestError as error:
        if not over.is_set() or not opened:
            raise
        late = error
    finally:
        timer.cancel()
    if over.is_set():  # though nothing failed: the end of a connection may look like that of a body
        raise httpx.ReadTimeout("the answer did not end in time") from late


def _custom_headers() -> list[str]:
    """The names of the headers that a variable makes the openai package add."""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    return [name.strip() for line in lines if (name := line.partition(":")[0]).strip()]
