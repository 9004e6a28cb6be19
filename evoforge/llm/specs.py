"""Which models may be asked, where they are, and what they cost."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from evoforge.errors import UsageError
from evoforge.llm.records import Request, Usage

__all__ = ["ModelSpec", "Prices", "is_loopback", "prices_of"]

_PRICES = ("usd_per_mtok_in", "usd_per_mtok_cached", "usd_per_mtok_out")


@dataclass(frozen=True)
class ModelSpec:
    """A model as a campaign file names it; never its key.

    `model` is litellm's name (``anthropic/claude-…``, ``openai/<name>`` with `api_base` for any
    server that speaks OpenAI's protocol). `api_key_env` names the environment variable that holds
    the key; None: litellm's own for that provider, and no key at all where `api_base` is given, so
    that one provider's key is never sent to another's server. Prices are in dollars per million
    tokens; what is read from the provider's cache costs as other input where `usd_per_mtok_cached`
    is None.

    Raises:
        UsageError: an empty name, a price without its counterpart, a number out of its range.
    """

    model: str
    api_base: str | None = None
    api_key_env: str | None = None
    usd_per_mtok_in: float | None = None
    usd_per_mtok_cached: float | None = None
    usd_per_mtok_out: float | None = None
    max_tokens: int = 8192
    timeout_s: float = 120.0
    temperature: float = 0.7

    def __post_init__(self) -> None:
        if not self.model.strip() or not self.model.isprintable():
            raise UsageError(f"expected a model like openai/<name>, got {self.model!r}")
        if self.api_base is not None and (problem := _address_problem(self.api_base)):
            # the address is never shown: it may hold a key
            raise UsageError(f"expected api_base of {self.model} like http://127.0.0.1:8000/v1, got {problem}")
        if self.api_key_env is not None and not self.api_key_env.isidentifier():  # never shown: it may be the key
            raise UsageError(f"expected api_key_env of {self.model} to be a variable's name, such as MY_API_KEY")
        for name in _PRICES:
            price = getattr(self, name)
            if price is not None and not (math.isfinite(price) and price >= 0):
                raise UsageError(f"expected {name} of {self.model} in dollars per million tokens, got {price!r}")
        if (self.usd_per_mtok_in is None) != (self.usd_per_mtok_out is None):
            raise UsageError(f"{self.model} needs both usd_per_mtok_in and usd_per_mtok_out, or neither")
        if self.usd_per_mtok_cached is not None and self.usd_per_mtok_in is None:
            raise UsageError(f"{self.model} has usd_per_mtok_cached; add usd_per_mtok_in and usd_per_mtok_out")
        if self.max_tokens < 1 or not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise UsageError(f"{self.model} needs max_tokens of at least 1 and timeout_s above 0")
        if not 0 <= self.temperature <= 2:
            raise UsageError(f"expected temperature of {self.model} from 0 to 2, got {self.temperature!r}")

    def request(
        self,
        system: str,
        user: str,
        purpose: str,
        *,
        attempt: int = 0,
        ticket: int | None = None,
        meta_prompt: str | None = None,
    ) -> Request:
        """A question to this model with its own limit of tokens and temperature."""
        return Request(
            self.model, system, user, purpose, self.max_tokens, self.temperature, attempt, ticket, meta_prompt
        )

    @property
    def local(self) -> bool:
        """Whether `api_base` is this machine."""
        return is_loopback(urlsplit(self.api_base or "").hostname or "")

    @property
    def provider(self) -> str:
        """Who reads the prompts, for people: the host of `api_base`, or litellm's provider."""
        if self.api_base is not None:
            return urlsplit(self.api_base).hostname or self.api_base
        return self.model.partition("/")[0] if "/" in self.model else f"the provider of {self.model}"


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Prices:
    """Dollars per token."""

    usd_in: float
    usd_cached: float
    usd_out: float

    def usd(self, usage: Usage) -> float:
        fresh = usage.prompt_tokens - usage.cached_tokens
        return fresh * self.usd_in + usage.cached_tokens * self.usd_cached + usage.completion_tokens * self.usd_out

    def most_usd(self, request: Request) -> float:
        """What one attempt can cost: the whole prompt uncached, the reply as long as it may be."""
        prompt = request.most_prompt_tokens * max(self.usd_in, self.usd_cached)
        return prompt + request.most_completion_tokens * self.usd_out


def _address_problem(address: str) -> str:
    """What is wrong with a server's address; empty where nothing is."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return "one with a broken host or port"
    if "@" in address:
        return "one with a user or password; name the key's variable: api_key_env"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "one without http://, https:// or a host"
    if parts.query or parts.fragment or "?" in address or "#" in address:
        return "one with ? or #; name the key's variable: api_key_env"
    return ""


@lru_cache(maxsize=256)
def prices_of(spec: ModelSpec) -> Prices:
    """The given prices; else nothing for a server on this machine; else litellm's bundled list.

    Raises:
        UsageError: the price is unknown; names the keys to add. It is never taken as zero.
    """
    if spec.usd_per_mtok_in is not None and spec.usd_per_mtok_out is not None:
        cached = spec.usd_per_mtok_in if spec.usd_per_mtok_cached is None else spec.usd_per_mtok_cached
        return Prices(spec.usd_per_mtok_in / 1e6, cached / 1e6, spec.usd_per_mtok_out / 1e6)
    if spec.local:
        return Prices(0.0, 0.0, 0.0)
    found = _listed(spec)
    if found is None:
        where = "" if spec.api_base is None else f" at {spec.provider}"
        raise UsageError(
            f"the price of {spec.model}{where} is not known (is it PROVIDER/NAME?); add usd_per_mtok_in and "
            "usd_per_mtok_out (dollars per million tokens, 0 if it is free) to the model in a campaign file's 'models'"
        )
    return found


def _listed(spec: ModelSpec) -> Prices | None:
    """From the list inside litellm. No list tells what another server takes for a model's name."""
    from evoforge.llm.litellm_import import import_litellm

    listed = import_litellm().model_cost
    provider, slash, name = spec.model.partition("/")
    provider = provider if slash else ""
    if spec.api_base is not None and provider in ("", "openai"):
        return None
    entry = listed.get(spec.model)
    if entry is None and provider and (listed.get(name) or {}).get("litellm_provider") == provider:
        entry = listed[name]
    if entry is None or not isinstance(entry.get("input_cost_per_token"), int | float):
        return None
    usd_in, usd_out = float(entry["input_cost_per_token"]), entry.get("output_cost_per_token")
    if not isinstance(usd_out, int | float):
        return None
    thought = entry.get("output_cost_per_reasoning_token")  # thoughts are booked as completion: the dearer price
    usd_out = max(usd_out, thought) if isinstance(thought, int | float) else usd_out
    cached = entry.get("cache_read_input_token_cost")
    return Prices(usd_in, float(cached) if isinstance(cached, int | float) else usd_in, float(usd_out))
