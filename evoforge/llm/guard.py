"""What every request to a model goes through: no redirects, no endless answers, nobody else's headers.

httpx limits the time of each read and not that of an answer, which a server can drip out for hours, and reads bodies
whole, however long they are. litellm follows redirects, so a server could hand the prompt on to anybody. The openai
package adds what variables say (organization, project, headers) whichever server it talks to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import httpx

from evoforge.llm.specs import is_loopback

__all__ = ["Guard", "TooLongError"]

_MOST_BYTES = 16 << 20
_MOST_PACKED_BYTES = 256 << 10  # compressed, though it was asked not to be: what it unpacks to is not known
_OWN_HEADERS = ("openai-organization", "openai-project")
_OWN_HOST = "api.openai.com"


class TooLongError(httpx.ReadError):
    """The answer is longer than any completion."""


class Guard(httpx.BaseTransport):
    """A transport that ends an answer with its request's timeout for reads, and after 16 MiB.

    Servers on this machine are asked directly, whatever proxy the environment names. `close` does nothing, for
    clients share it; `shut` closes the connections.
    """

    def __init__(self, verify: Any = True) -> None:
        self._direct = httpx.Client(verify=verify, trust_env=False)
        self._outside = httpx.Client(verify=verify)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        limit = (request.extensions.get("timeout") or {}).get("read")
        ends = None if limit is None else time.monotonic() + limit
        request.headers["accept-encoding"] = "identity"
        if request.url.host != _OWN_HOST:
            for name in (*_OWN_HEADERS, *_custom_headers()):
                request.headers.pop(name, None)
        client = self._direct if is_loopback(request.url.host) else self._outside
        response = client.send(request, stream=True, follow_redirects=False)
        response.headers.pop("location", None)
        most = _MOST_PACKED_BYTES if "content-encoding" in response.headers else _MOST_BYTES
        stream = _Limited(response, ends, most)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    def shut(self) -> None:
        self._direct.close()
        self._outside.close()


class _Limited(httpx.SyncByteStream):
    def __init__(self, response: httpx.Response, ends: float | None, most: int) -> None:
        self._response, self._ends, self._left = response, ends, most

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._response.stream, httpx.SyncByteStream)
        for part in self._response.stream:
            self._left -= len(part)
            if self._left < 0:
                raise TooLongError("the answer is longer than any completion")
            if self._ends is not None and time.monotonic() > self._ends:
                raise httpx.ReadTimeout("the answer did not end in time")
            yield part

    def close(self) -> None:
        self._response.close()


def _custom_headers() -> list[str]:
    """The names of the headers that a variable makes the openai package add."""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    return [name.strip() for line in lines if (name := line.partition(":")[0]).strip()]
