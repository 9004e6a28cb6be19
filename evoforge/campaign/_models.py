"""From a campaign's configuration to models that can be asked, within their budget."""

from __future__ import annotations

import threading
from collections.abc import Callable

from evoforge.campaign._asked import asked_of, whole
from evoforge.campaign._desk import Desk
from evoforge.config import CampaignConfig
from evoforge.core import Outcome
from evoforge.emitters import BLIND_EMITTERS, MODEL_EMITTERS
from evoforge.errors import ConfigError, NotFoundError
from evoforge.llm import (
    Caps,
    Client,
    Ledger,
    LiteLLMClient,
    Metered,
    ModelSpec,
    Recorded,
    Reply,
    Request,
    Totals,
    longest_of,
    prices_of,
    reply_of,
)
from evoforge.prompts import Send
from evoforge.storage import Store, open_store

__all__ = ["check_models", "desk_of", "leaves", "sent_by", "specs_of"]


def check_models(config: CampaignConfig, *, asks: bool = True) -> None:
    """Everything about models that can be said before anything runs; keys only where somebody `asks`.

    Raises:
        ConfigError: an unknown emitter, emitters without models, or a budget that lets no call through.
        UsageError: a price or a provider that is not known, a key that is not set.
    """
    unknown = sorted(set(config.emitters or ()) - {"generator", *MODEL_EMITTERS})
    if unknown or config.emitters == ():
        raise ConfigError(
            f"expected emitters of generator, {', '.join(MODEL_EMITTERS)}, got {', '.join(unknown) or 'none'}; "
            "mend the key 'emitters' of the campaign file"
        )
    if not config.models:
        if config.asking and config.budget.evals != 0:
            raise ConfigError(
                f"emitters {', '.join(config.asking)} ask models, got none; add models: [{{model: …}}] or --model"
            )
        return
    if not config.asking:
        raise ConfigError(
            f"expected an emitter that asks {config.models[0].model}, got emitters: [generator]; leave out 'emitters', "
            f"or name some of {', '.join(MODEL_EMITTERS)} too"
        )
    specs = specs_of(config)
    paid = [spec.model for spec in specs if prices_of(spec).most_usd(spec.request("", "", "")) > 0]
    if paid and not config.budget.usd:
        raise ConfigError(
            f"expected a budget for {paid[0]}, which costs money, got usd: 0; set budget: {{usd: …}} or --usd"
        )
    shown = [name for name in config.asking if name not in BLIND_EMITTERS]
    if shown and not config.send.kernels:
        raise ConfigError(f"{', '.join(shown)} must show a model a kernel; set send: {{kernels: true}} or name others")
    if asks:
        LiteLLMClient(specs)


def specs_of(config: CampaignConfig) -> tuple[ModelSpec, ...]:
    return tuple(ModelSpec(**model.model_dump()) for model in config.models)


def leaves(config: CampaignConfig) -> str:
    """One sentence on what leaves the machine and for whom; empty where nothing does."""
    outside = sorted({spec.provider for spec in specs_of(config) if not spec.local})
    if not outside:
        return ""
    parts = [
        (config.send.task, "the task's source"),
        (config.send.kernels, "kernels"),
        (config.send.hardware, "what hardware this is"),
        (True, "shapes, times and verdicts"),
    ]
    sent = [text for on, text in parts if on]
    return (
        f"{', '.join(sent[:-1])} and {sent[-1]} go to {', '.join(outside)}; "
        "send: {task, kernels, hardware} switches parts off, evoforge ask --show prints the exact text"
    )


def sent_by(config: CampaignConfig) -> Send:
    """What the campaign lets leave this machine."""
    return Send(task=config.send.task, kernels=config.send.kernels, hardware=config.send.hardware)


def desk_of(
    name: str, config: CampaignConfig, store: Store, replay: tuple[str, str] | None, extend: bool, until: float,
    notice: Callable[[str], object], phase: Callable[[str], object],
) -> Desk | None:  # fmt: skip
    """The desk of a campaign; None without models. Earlier calls of this campaign count.

    With `replay`, a store and the name of a campaign in it, every question is looked up among that campaign's: in the
    campaign's own store others have asked too, this one among them, whose question is kept before it is answered. One
    that was not asked there is asked now (`extend`) or stops the run. No call is tried again after `until` (as
    `time.monotonic`).
    """
    specs = specs_of(config)
    if not specs:
        return None
    budget = config.budget
    past = [
        whole(store, row) if row.call.outcome is Outcome.TOO_LONG else row.call  # how long is in its texts
        for row in store.calls(name, texts=False)
    ]
    client: Client
    stopping = threading.Event()
    if replay is None:
        client = LiteLLMClient(specs, until=until, stopping=stopping)
    else:
        asking = LiteLLMClient(specs, until=until, stopping=stopping) if extend else None
        client = _Replayed(open_store(replay[0], create=False), replay[1], asking)
    caps = Caps(usd=budget.usd, tokens=budget.tokens, calls=budget.calls)
    ledger = Ledger(caps, Totals.of(past), longest_of(past))
    metered = Metered(
        client, specs, ledger, lambda call: store.record_call(name, call),
        lambda number, call: store.replace_call(name, number, call),
    )  # fmt: skip
    return Desk(
        metered, specs, tokens=config.meta_prompts.tokens, send=sent_by(config), at_once=config.workers,
        past=past, asked=lambda *question: store.issue_ticket(name, asked_of(name, *question)), notice=notice,
        phase=phase, stopping=stopping, ledger=ledger, recorded=replay is not None,
    )  # fmt: skip


class _Replayed:
    """Replies that a stored campaign got; questions that it did not ask go on to `otherwise`."""

    def __init__(self, store: Store, campaign: str, otherwise: Client | None) -> None:
        self._recorded = Recorded(lambda digest: _found(store, campaign, digest))
        self._otherwise = otherwise

    def complete(self, request: Request) -> Reply:
        try:
            return self._recorded.complete(request)
        except NotFoundError:
            if self._otherwise is None:
                raise
            return self._otherwise.complete(request)


def _found(store: Store, campaign: str, digest: str) -> Reply | None:
    rows = store.find_call(digest, campaign)
    return reply_of(rows[0].call) if rows else None
