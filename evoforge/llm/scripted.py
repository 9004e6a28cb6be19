"""Clients without a network: a script, and the replay of recorded calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from evoforge.core import Outcome
from evoforge.errors import NotFoundError, UsageError
from evoforge.llm.records import Reply, Request, Usage, estimate_tokens

__all__ = ["Recorded", "ScriptedClient"]


class ScriptedClient:
    """Answers from a script, for tests and simulations: yours too.

    Args:
        replies: what to say, one after the other, or a function of the request. A text becomes an OK
            reply (EMPTY where there is nothing in it) that costs nothing, with estimated tokens.

    `requests` keeps what was asked, in order. A function is called by one thread at a time.
    """

    def __init__(self, replies: Sequence[str | Reply] | Callable[[Request], str | Reply]) -> None:
        self.requests: list[Request] = []
        self._replies = replies
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Reply:
        """Raises UsageError where the script is over."""
        with self._lock:
            self.requests.append(request)
            if callable(self._replies):
                found = self._replies(request)
            elif len(self.requests) <= len(self._replies):
                found = self._replies[len(self.requests) - 1]
            else:
                raise UsageError(f"expected at most {len(self._replies)} calls, got one more; give a longer script")
        if isinstance(found, Reply):
            return found
        usage = Usage(estimate_tokens(request.system + request.user), 0, estimate_tokens(found))
        return Reply(found, Outcome.OK if found.strip() else Outcome.EMPTY, usage, 0.0, 0.0, request.model)


class Recorded:
    """Answers what was answered before, cost included; asks nobody.

    `lookup` finds the reply by `Request.prompt_hash`, or None.
    """

    def __init__(self, lookup: Callable[[str], Reply | None]) -> None:
        self._lookup = lookup

    def complete(self, request: Request) -> Reply:
        """Raises NotFoundError where no such call was recorded."""
        found = self._lookup(request.prompt_hash)
        if found is None:
            raise NotFoundError(
                f"no recorded reply of {request.model} to prompt {request.prompt_hash[:12]} ({request.purpose}); "
                "replay the store that this campaign was recorded in, with its seed and prompts, or ask the model"
            )
        return found
