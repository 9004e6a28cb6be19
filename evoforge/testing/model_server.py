"""A model provider on this machine: OpenAI's chat completions over real HTTP, with a script.

It answers with what the test asks for, faults included, keeps its own books, and returns them as
``usage``, so that a ledger can be held against the provider's count::

    with ModelServer([good("text"), fault(500), slow(), good("again")], key="k-1") as server:
        client = LiteLLMClient([ModelSpec("openai/any", api_base=server.api_base)])
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

__all__ = [
    "Answer", "Books", "ModelServer", "dripping", "fault", "garbage", "good", "refused", "reset", "slow", "truncated",
]  # fmt: skip

_BLOCK = 64
"""Tokens per cached block: prompts that begin alike are cached in whole blocks, as providers do."""


@dataclass(frozen=True)
class Answer:
    """What one request gets. `fault` is one of "", "reset", "slow", "dripping", "garbage"."""

    text: str = ""
    finish: str = "stop"
    status: int = 200
    headers: Mapping[str, str] | None = None
    body: str | None = None
    fault: str = ""
    refusal: str | None = None
    usage: bool = True
    code: str | None = None


def good(text: str, *, usage: bool = True) -> Answer:
    """A whole reply; without `usage` as some local servers send it."""
    return Answer(text, usage=usage)


def truncated(text: str) -> Answer:
    """A reply that hit the limit of tokens."""
    return Answer(text, "length")


def refused(text: str = "", *, refusal: str | None = "I cannot help with that.") -> Answer:
    """A refusal: as a message's `refusal`, or with None as the content filter's end."""
    return Answer(text, "content_filter" if refusal is None else "stop", refusal=refusal)


def fault(status: int, message: str = "", *, retry_after: str | None = None, code: str | None = None) -> Answer:
    """An HTTP error with OpenAI's body; `message` may say anything, a key too."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Answer(message or f"scripted error {status}", status=status, headers=headers, code=code)


def garbage(body: str = "<html>not a completion</html>") -> Answer:
    """Status 200 and a body that is no completion."""
    return Answer(fault="garbage", body=body)


def reset() -> Answer:
    """The connection closes without an answer."""
    return Answer(fault="reset")


def dripping() -> Answer:
    """A body that comes a byte at a time and does not end until the client or the server goes away."""
    return Answer(fault="dripping")


def slow() -> Answer:
    """No answer until the client or the server goes away."""
    return Answer(fault="slow")


@dataclass
class Books:
    """The provider's count. `calls` are HTTP requests; tokens are those of answered ones."""

    calls: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


Script = Sequence[Answer] | Callable[[Mapping[str, Any]], Answer]


class ModelServer:
    """Serves `script` (a sequence, its last answer repeated, or a function of the request's body).

    With `key` every request must carry it, else 401; with `models` others get 404. Token counts are
    the server's own, a token per four bytes.
    """

    def __init__(self, script: Script, *, key: str | None = None, models: Sequence[str] | None = None) -> None:
        self.books = Books()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._script, self._key, self._models = script, key, models
        self._lock = threading.Lock()
        self._given = 0
        self._cache: set[str] = set()
        self._closing = threading.Event()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """The next answer, counted as a call."""
        authorization = headers.get("Authorization", "")
        with self._lock:
            self.books.calls += 1
            self.requests.append(dict(body))
            self.headers.append(dict(headers))
            if self._key is not None and authorization != f"Bearer {self._key}":
                shown = authorization.removeprefix("Bearer ")
                return fault(401, f"Incorrect API key provided: {shown}.", code="invalid_api_key")
            if self._models is not None and body.get("model") not in self._models:
                return fault(404, f"The model {body.get('model')!r} does not exist", code="model_not_found")
            if callable(self._script):
                return self._script(body)
            self._given += 1
            return self._script[min(self._given, len(self._script)) - 1]

    def completion(self, answer: Answer, body: Mapping[str, Any]) -> dict[str, Any]:
        """OpenAI's response body, booked."""
        prompt = "\0".join(str(message.get("content")) for message in body.get("messages", ()))
        text, finish = answer.text, answer.finish
        limit = body.get("max_tokens") or body.get("max_completion_tokens")
        if limit is not None and _tokens(text) > limit:
            text, finish = text.encode()[: 4 * limit].decode(errors="ignore"), "length"
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if answer.refusal is not None:
            message |= {"content": None, "refusal": answer.refusal}
        spent = {"prompt": _tokens(prompt), "completion": _tokens(text or answer.refusal or "")}
        with self._lock:
            cached = self._cached(prompt)
            self.books.answered += 1
            self.books.prompt_tokens += spent["prompt"]
            self.books.cached_tokens += cached
            self.books.completion_tokens += spent["completion"]
        found: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if answer.usage:
            found["usage"] = {
                "prompt_tokens": spent["prompt"],
                "completion_tokens": spent["completion"],
                "total_tokens": spent["prompt"] + spent["completion"],
                "prompt_tokens_details": {"cached_tokens": cached},
            }
        return found

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the server closes; whether it does."""
        return self._closing.wait(timeout_s)

    def _cached(self, prompt: str) -> int:
        data = prompt.encode()
        ends = range(4 * _BLOCK, len(data) + 1, 4 * _BLOCK)
        prefixes = [hashlib.sha256(data[:end]).hexdigest() for end in ends]
        known = sum(prefix in self._cache for prefix in prefixes)
        self._cache.update(prefixes)
        return known * _BLOCK


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // 4)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is part of the script."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silent."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        owner = self.server.owner
        if not self.path.endswith("/chat/completions"):
            self._send(404, json.dumps({"error": {"message": f"no {self.path}"}}), {})
            return
        answer = owner.answer(dict(self.headers), body)
        if answer.fault == "dripping":
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 20))
            self.end_headers()
            while not owner.wait(0.02):
                self.wfile.write(b" ")
        if answer.fault in ("reset", "slow", "dripping"):
            if answer.fault == "slow":
                owner.wait()
            self.close_connection = True
            return
        if answer.status != 200:
            error = {"message": answer.text, "type": "scripted", "param": None, "code": answer.code}
            self._send(answer.status, json.dumps({"error": error}), answer.headers or {})
            return
        text = answer.body if answer.body is not None else json.dumps(owner.completion(answer, body))
        self._send(200, text, {})

    def _send(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
