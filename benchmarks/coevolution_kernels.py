"""Campaigns on real kernels whose arms share one record of evaluations per task."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from shuffled import ShuffledBandit, ShuffledPool

from evoforge.campaign import Campaign
from evoforge.campaign._journey import Journey
from evoforge.campaign._loop import Loop
from evoforge.config import Budget, CampaignConfig
from evoforge.prompts import PromptPool
from evoforge.storage import Store, open_store

__all__ = ["TASKS", "run_kernels"]

_TASKS = Path(__file__).resolve().parent.parent / "experiments" / "tasks"
_RECORD = "record"
_NO_SEED = 2**40  # of the record's campaign: a replay with its seed would end where it ended
USD_PER_S = 1e-4

TASKS: Mapping[str, Mapping[str, int]] = {
    "add_rms_norm": {"M": 64, "N": 1024},
    "softmax": {"M": 64, "N": 1024},
    "layer_norm": {"M": 64, "N": 1024},
    "swiglu": {"M": 64, "N": 1024},
    "cross_entropy": {"ROWS": 128, "CLASSES": 1024},
}
"""Tasks with settings at which all tensors stay in the second-level cache, so that a trial is short."""


def run_kernels(task: str, arm: str, seed: int, evals: int, folder: Path) -> dict[str, Any]:
    """The row of one campaign. What it had to measure is added to the task's record in `folder`."""
    began = time.perf_counter()
    record = f"sqlite:///{folder}/{task}.db"
    _prepared(task, record)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        url = f"sqlite:///{scratch}/run.db"
        campaign = _Arm.create(_config(task, arm, seed, evals), url, replay=record, replay_extend=True)
        result = campaign.run()
        with open_store(url, create=False) as mine, open_store(record, create=False) as theirs:
            measured = _keep(mine, campaign.name, theirs)
            prompts = len(mine.meta_prompts(campaign.name))
    return {
        "task": task, "arm": arm, "seed": seed, "budget_evals": evals, "evaluations": result.evaluations,
        "correct": result.correct, "qd_score": result.qd_score, "cells": result.filled, "reachable": result.reachable,
        "prompts": prompts, "measured": measured, "stopped": result.stop_reason,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def _config(task: str, arm: str, seed: int, evals: int) -> CampaignConfig:
    kind, _, name = arm.partition(":")
    prompts = {"pool": name, "evolve_every": 0} if kind == "frozen" else {}
    return CampaignConfig.model_validate(
        {
            "name": arm, "task": str(_TASKS / f"{task}.py"), "set": dict(TASKS[task]), "seed": seed,
            "budget": Budget(evals=evals), "meta_prompts": prompts, "emitters": ("generator",),
        }
    )  # fmt: skip


def _prepared(task: str, record: str) -> None:
    """Chooses baselines and bounds once, so that all campaigns of a task stand on the same ground."""
    if Path(record.removeprefix("sqlite:///")).exists():
        return
    config = _config(task, "evolved", _NO_SEED, 0).model_copy(update={"name": _RECORD})
    Campaign.create(config, record).run()


def _keep(mine: Store, name: str, record: Store) -> int:
    """Appends what was measured and not replayed; how much that is.

    Campaigns get a store of their own: a replayed row is stored again by who replays it, and in the
    record it would pass for a second measurement.
    """
    known: dict[str, list[Any]] = {}
    for row in record.evaluations(campaign=_RECORD):
        known.setdefault(row.evaluation.candidate, []).append(row.evaluation)
    candidates = {candidate.id: candidate for candidate in mine.candidates(name)}
    ticket, count = record.last_ticket(_RECORD), 0
    ticket = -1 if ticket is None else ticket
    for stored in mine.evaluations(campaign=name):
        evaluation = stored.evaluation
        have = known.setdefault(evaluation.candidate, [])
        if evaluation in have or not evaluation.status.charged:
            continue
        ticket += 1
        have.append(evaluation)
        orphan = replace(candidates[evaluation.candidate], parents=(), meta_prompt=None)
        record.record_outcome(_RECORD, ticket, orphan, [evaluation])
        count += 1
    return count


class _Arm(Campaign):
    """A campaign with credit as its name says, and without the report at its end, which no arm needs."""

    def pool(self) -> PromptPool:
        plain = super().pool()
        return ShuffledPool(plain, self.config.seed) if self.name == "shuffled" else plain

    def _loop(self, *args: Any, **more: Any) -> Loop:
        loop = super()._loop(*args, **more)
        if isinstance(loop.pool, ShuffledPool):
            loop.bandit = ShuffledBandit(loop.pool, USD_PER_S)
        loop.journey = _Unreported(**{one.name: getattr(loop.journey, one.name) for one in fields(loop.journey)})
        return loop


class _Unreported(Journey):
    def finish(self) -> None:
        """No arm is claimed to be fast."""
