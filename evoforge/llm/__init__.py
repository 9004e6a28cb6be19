"""Models: the client protocol, litellm behind it, scripts and recordings, and the ledger.

Importing this package does not import litellm; `LiteLLMClient` does, and `prices_of` where it has to
look a price up.
"""

from __future__ import annotations

from evoforge.core import Call, Outcome, redact
from evoforge.llm.adapter import LiteLLMClient
from evoforge.llm.ledger import Caps, Ledger, Metered, Reservation, Totals, longest_of
from evoforge.llm.litellm_import import close_connections
from evoforge.llm.records import Client, Reply, Request, Usage, call_of, reply_of
from evoforge.llm.scripted import Recorded, ScriptedClient
from evoforge.llm.specs import ModelSpec, Prices, prices_of

__all__ = [
    "Call",
    "Caps",
    "Client",
    "Ledger",
    "LiteLLMClient",
    "Metered",
    "ModelSpec",
    "Outcome",
    "Prices",
    "Recorded",
    "Reply",
    "Request",
    "Reservation",
    "ScriptedClient",
    "Totals",
    "Usage",
    "call_of",
    "close_connections",
    "longest_of",
    "prices_of",
    "redact",
    "reply_of",
]
