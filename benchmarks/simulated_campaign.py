"""One campaign on the simulated machine: evoforge's own loop with credit as the arm says."""

from __future__ import annotations

import time
from typing import Any, cast

from shuffled import Deck, ScrambledBandit, ScrambledPool, ShuffledBandit, ShuffledPool
from simulated_model import SHARED, Author, Machine, World, first_source

from evoforge.campaign._budget import Clock
from evoforge.campaign._desk import Desk
from evoforge.campaign._events import Narrator
from evoforge.campaign._evolution import Evolution
from evoforge.campaign._journey import Journey
from evoforge.campaign._loop import Loop
from evoforge.campaign._state import State
from evoforge.core import Candidate, Evaluation
from evoforge.emitters import Bandit, Proposal, Selection, model_emitters
from evoforge.llm import Caps, Ledger, Metered, ModelSpec, Totals
from evoforge.prompts import PromptPool, Send, TaskBrief, load_contract
from evoforge.storage import Store

__all__ = ["run_campaign"]

EVOLVE_EVERY, ACTIVE, WORKERS = 20, 8, 4  # a campaign's defaults
USD_PER_S = 1e-4
SPEC = ModelSpec("openai/simulated", usd_per_mtok_in=1.0, usd_per_mtok_out=5.0, max_tokens=4096)
EMITTERS = ("invent", "improve", "aim", "cross")


def run_campaign(arm: str, seed: int, usd: float, shared: float = SHARED, decisive: int = 0) -> dict[str, Any]:
    """The row of one campaign; equal arguments give equal rows, seconds aside."""
    began = time.perf_counter()
    loop, totals, reason = simulate(arm, seed, usd, shared, decisive)
    return {
        "arm": arm, "seed": seed, "budget_usd": usd, "shared": shared, "decisive": decisive,
        "usd": totals.usd, "calls": totals.calls,
        "qd_score": loop.state.archive.qd_score, "cells": len(loop.state.archive),
        "reachable": len(loop.state.archive.reachable), "evaluations": loop.state.spent, "correct": loop.state.correct,
        "prompts": len(loop.pool), "active": [prompt.ref for prompt in loop.pool.active()], "stopped": reason,
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def simulate(arm: str, seed: int, usd: float, shared: float = SHARED, decisive: int = 0) -> tuple[Loop, Totals, str]:
    """The campaign when its dollars are spent: search, ledger, and why it stopped."""
    pool, bandit, every = _credit(arm, seed)
    ledger = Ledger(Caps(usd=usd))
    client = Metered(Author(SPEC, seed), [SPEC], ledger, lambda call: 0, lambda number, call: None)
    desk = Desk(client, [SPEC], tokens=24000, send=Send(), at_once=WORKERS)
    world, selection = World(seed, shared, decisive), Selection()
    journey = Journey(
        campaign=f"{arm}-{seed}", store=cast(Store, _Forgetful()), state=State(world.reachable),
        measurer=Machine(world), narrator=Narrator(None), clock=Clock(None, None), seed=seed, trials=0, lead={},
    )  # fmt: skip
    loop = Loop(
        journey=journey, space=None, emitters=(), bandit=bandit, pool=pool,
        evolution=Evolution(every, seed, USD_PER_S, ACTIVE), seed=seed, workers=WORKERS, told=_told(),
        writers=model_emitters(EMITTERS, selection), desk=desk,
    )  # fmt: skip
    try:
        first = Candidate("cpp", first_source())
        reason = loop.run([Proposal(first, operator=first.operator, emitter=first.operator)])
    finally:
        desk.close()
    return loop, ledger.totals, reason


def _credit(arm: str, seed: int) -> tuple[PromptPool, Bandit, int]:
    """Pool, bandit and how often prompts evolve."""
    prompts = list(PromptPool.default("cpp"))
    kind, _, name = arm.partition(":")
    if kind == "static":
        prompts = [prompt for prompt in prompts if prompt.name == name]
    if kind == "shuffled":
        shuffled = ShuffledPool(prompts, seed)
        return shuffled, ShuffledBandit(shuffled, USD_PER_S), EVOLVE_EVERY
    if kind == "scrambled":
        deck = Deck(seed)
        scrambled = ScrambledPool(prompts, deck)
        return scrambled, ScrambledBandit(scrambled, deck, USD_PER_S), EVOLVE_EVERY
    pool = PromptPool(prompts)
    return pool, Bandit(pool.ancestors, usd_per_s=USD_PER_S), EVOLVE_EVERY if kind == "evolved" else 0


class _Forgetful:
    """A store for campaigns that nobody reads again."""

    def record_outcome(self, *args: object, **more: object) -> list[Evaluation]:
        return []

    def add_meta_prompt(self, *args: object, **more: object) -> None:
        return None


def _told() -> TaskBrief:
    return TaskBrief(
        source="import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
        workloads={"default": "in0 (x): f32[2048,4096]; out0 (y): f32[2048,4096]"},
        tolerance="elementwise against fp64, factor 512", precision="ieee", language="cpp",
        contract=load_contract("cpp"), baseline_ms={"default": {"eager": 1.0, "compiled": 1.0}},
        target_facts={"threads": "2", "isa": "avx2"},
    )  # fmt: skip
