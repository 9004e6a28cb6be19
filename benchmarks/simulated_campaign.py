"""One campaign on the simulated machine: evoforge's own loop with credit as the arm says."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

import numpy as np
from simulated_model import Author, Machine, World, first_source

from evoforge.campaign._budget import Clock
from evoforge.campaign._desk import Desk
from evoforge.campaign._events import Narrator
from evoforge.campaign._evolution import Evolution
from evoforge.campaign._loop import Loop
from evoforge.campaign._state import State
from evoforge.core import Candidate, Evaluation
from evoforge.emitters import Arm, Bandit, Outcome, Selection, model_emitters
from evoforge.llm import Caps, Ledger, Metered, ModelSpec
from evoforge.prompts import Note, PromptPool, Send, TaskBrief, load_contract
from evoforge.storage import Store

__all__ = ["run_campaign"]

EVOLVE_EVERY, ACTIVE, WORKERS = 20, 8, 4  # a campaign's defaults
USD_PER_S = 1e-4
SPEC = ModelSpec("openai/simulated", usd_per_mtok_in=1.0, usd_per_mtok_out=5.0, max_tokens=4096)
EMITTERS = ("invent", "improve", "aim", "cross")


def run_campaign(arm: str, seed: int, usd: float) -> dict[str, Any]:
    """The row of one campaign; equal arguments give equal rows, seconds aside."""
    began = time.perf_counter()
    pool, bandit, every = _credit(arm, seed)
    ledger = Ledger(Caps(usd=usd))
    client = Metered(Author(SPEC, seed), [SPEC], ledger, lambda call: None)
    desk = Desk(client, [SPEC], tokens=24000, send=Send(), at_once=WORKERS)
    world, selection = World(seed), Selection()
    loop = Loop(
        campaign=f"{arm}-{seed}", store=cast(Store, _Forgetful()), state=State(world.reachable),
        measurer=Machine(world), narrator=Narrator(None), clock=Clock(None, None), space=None, emitters=(),
        bandit=bandit, pool=pool, evolution=Evolution(every, seed, USD_PER_S, ACTIVE), seed=seed, workers=WORKERS,
        trials=0, lead={}, told=_told(), writers=model_emitters(EMITTERS, selection), desk=desk,
    )  # fmt: skip
    try:
        reason = loop.run([Candidate("cpp", first_source())])
    finally:
        desk.close()
    totals = ledger.totals
    return {
        "arm": arm, "seed": seed, "budget_usd": usd, "usd": totals.usd, "calls": totals.calls,
        "qd_score": loop.state.archive.qd_score, "cells": len(loop.state.archive),
        "reachable": len(loop.state.archive.reachable), "evaluations": loop.state.spent, "correct": loop.state.correct,
        "prompts": len(pool), "active": [prompt.ref for prompt in pool.active()], "stopped": reason,
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def _credit(arm: str, seed: int) -> tuple[PromptPool, Bandit, int]:
    """Pool, bandit and how often prompts evolve."""
    prompts = list(PromptPool.default("cpp"))
    kind, _, name = arm.partition(":")
    if kind == "static":
        prompts = [prompt for prompt in prompts if prompt.name == name]
    if kind == "shuffled":
        shuffled = ShuffledPool(prompts, seed)
        return shuffled, ShuffledBandit(shuffled), EVOLVE_EVERY
    if kind == "scrambled":
        deck = Deck(seed)
        scrambled = ScrambledPool(prompts, deck)
        return scrambled, ScrambledBandit(scrambled, deck), EVOLVE_EVERY
    pool = PromptPool(prompts)
    return pool, Bandit(pool.ancestors, usd_per_s=USD_PER_S), EVOLVE_EVERY if kind == "evolved" else 0


class ShuffledPool(PromptPool):
    """Books every outcome under an active version drawn at random: by ticket, so that the bandit does the same."""

    def __init__(self, prompts: Any, seed: int) -> None:
        super().__init__(prompts)
        self._seed = seed

    def drawn(self, ticket: int) -> str:
        active = self.active()
        return active[int(np.random.default_rng([self._seed, 7, ticket]).integers(len(active)))].ref

    def credit(
        self, ref: str | None, *, gain: float, cost_s: float, valid: bool, cost_usd: float = 0.0,
        note: Note | None = None,
    ) -> None:  # fmt: skip
        if ref is not None and note is not None:
            ref = self.drawn(note.ticket)
        super().credit(ref, gain=gain, cost_s=cost_s, valid=valid, cost_usd=cost_usd, note=note)


class ShuffledBandit(Bandit):
    def __init__(self, pool: ShuffledPool) -> None:
        super().__init__(pool.ancestors, usd_per_s=USD_PER_S)
        self._pool = pool

    def tell(self, outcome: Outcome) -> None:
        if outcome.proposal.meta_prompt is not None:
            proposal = replace(outcome.proposal, meta_prompt=self._pool.drawn(outcome.ticket))
            outcome = replace(outcome, proposal=proposal)
        super().tell(outcome)

    def waste(self, ticket: int, arm: Arm, cost_usd: float) -> None:
        super().waste(ticket, replace(arm, meta_prompt=self._pool.drawn(ticket)), cost_usd)


class Deck:
    """What came of earlier outcomes, drawn by chance: (gain, valid, status, reason) of one of the last 20."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._results: dict[int, tuple[float, bool, str, str]] = {}

    def put(self, ticket: int, gain: float, valid: bool, status: str, reason: str) -> None:
        self._results.setdefault(ticket, (gain, valid, status, reason))

    def drawn(self, ticket: int) -> tuple[float, bool, str, str]:
        recent = sorted(self._results)[-20:]
        return self._results[recent[int(np.random.default_rng([self._seed, 8, ticket]).integers(len(recent)))]]


class ScrambledPool(PromptPool):
    """Books another outcome's end under the version that asked."""

    def __init__(self, prompts: Any, deck: Deck) -> None:
        super().__init__(prompts)
        self._deck = deck

    def credit(
        self, ref: str | None, *, gain: float, cost_s: float, valid: bool, cost_usd: float = 0.0,
        note: Note | None = None,
    ) -> None:  # fmt: skip
        if note is not None:
            self._deck.put(note.ticket, gain, valid, note.status, note.reason)
            gain, valid, status, reason = self._deck.drawn(note.ticket)
            note = replace(note, gain=gain, status=status, reason=reason)
        super().credit(ref, gain=gain, cost_s=cost_s, valid=valid, cost_usd=cost_usd, note=note)


class ScrambledBandit(Bandit):
    def __init__(self, pool: ScrambledPool, deck: Deck) -> None:
        super().__init__(pool.ancestors, usd_per_s=USD_PER_S)
        self._deck = deck

    def tell(self, outcome: Outcome) -> None:
        statuses = outcome.statuses
        self._deck.put(outcome.ticket, outcome.gain, outcome.valid, str(statuses[0]), "")
        gain, valid, _, _ = self._deck.drawn(outcome.ticket)
        right = tuple(one for one in type(statuses[0]) if one.correct is valid)[:1]
        super().tell(replace(outcome, gain=gain, statuses=right))

    def waste(self, ticket: int, arm: Arm, cost_usd: float) -> None:
        """A useless reply is no outcome that could be exchanged: the bandit sees it as it is."""
        super().waste(ticket, arm, cost_usd)


class _Forgetful:
    """A store for campaigns that nobody reads again."""

    def record_outcome(self, *args: object, **more: object) -> list[Evaluation]:
        return []

    def add_meta_prompt(self, *args: object) -> None:
        return None


def _told() -> TaskBrief:
    return TaskBrief(
        source="import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
        workloads={"default": "in0 (x): f32[2048,4096]; out0 (y): f32[2048,4096]"},
        tolerance="elementwise against fp64, factor 512", precision="ieee", language="cpp",
        contract=load_contract("cpp"), baseline_ms={"default": {"eager": 1.0, "compiled": 1.0}},
        target_facts={"threads": "2", "isa": "avx2"},
    )  # fmt: skip
