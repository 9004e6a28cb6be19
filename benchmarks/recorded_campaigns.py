"""Campaigns on real kernels whose arms share one record of evaluations per task.

Arms: ``evolved`` is evoforge as it comes, ``frozen:NAME`` with one meta-prompt alone, ``shuffled`` with credit that
tells nothing; ``random`` and ``optuna`` search the same space without an archive (`flat_search`).
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flat_search import FlatLoop, OptunaSource, RandomSource
from shuffled import ShuffledBandit, ShuffledPool

from evoforge.archives import DISQUALIFYING
from evoforge.archives.stats import QD_OFFSET, qd_auc
from evoforge.campaign import Campaign
from evoforge.campaign._journey import Journey
from evoforge.campaign._loop import Loop
from evoforge.campaign._setup import Setup
from evoforge.config import Budget, CampaignConfig
from evoforge.evaluation.judge import Judge
from evoforge.lowering.space import ScheduleSpace
from evoforge.prompts import PromptPool
from evoforge.storage import Store, open_store

__all__ = ["TASKS", "Measured", "difference_interval", "run_kernels", "seeds"]

_TASKS = Path(__file__).resolve().parent.parent / "experiments" / "tasks"
_RECORD = "record"
_NO_SEED = 2**40  # of the record's campaign: a replay with its seed would end where it ended
USD_PER_S = 1e-4
_DRAWS = 10_000
_AGAIN = 3  # confirmations of the best elite that the search did not choose it by
_FLAT = {"random": RandomSource, "optuna": OptunaSource}

TASKS: Mapping[str, Mapping[str, int]] = {
    "add_rms_norm": {"M": 64, "N": 1024},
    "softmax": {"M": 64, "N": 1024},
    "layer_norm": {"M": 64, "N": 1024},
    "swiglu": {"M": 64, "N": 1024},
    "cross_entropy": {"ROWS": 128, "CLASSES": 1024},
    "linear_gelu": {"TOKENS": 128, "INPUTS": 256, "OUTPUTS": 512},
    "conv3x3": {"BATCH": 1, "CHANNELS": 32, "SIDE": 28},
    "attention": {"HEADS": 2, "LENGTH": 256},
    "kmeans_assign": {"POINTS": 4096, "CENTRES": 64},
    "dlrm_interaction": {"BATCH": 128},
    "squeeze_excite": {"BATCH": 4, "CHANNELS": 128, "SIDE": 14},
    "lstm_cell": {"BATCH": 64, "INPUTS": 128, "HIDDEN": 128},
    "decode_attention": {"BATCH": 1, "HEADS": 8, "LENGTH": 512},
    "focal_loss": {"IMAGES": 1, "ANCHORS": 4096},
    "window_attention": {"WINDOWS": 16},
    "factorization_machine": {"BATCH": 512},
    "moe_matmul": {"TOKENS": 128, "EXPERTS": 4, "CAPACITY": 32, "INPUTS": 128, "OUTPUTS": 256},
}
"""Tasks with settings at which all tensors stay in the second-level cache, so that a trial is short. Of the first five
the plain schedule is hardly to be beaten there; of the next the suite's campaigns found better ones."""


def run_kernels(task: str, arm: str, seed: int, evals: int, folder: Path) -> dict[str, Any]:
    """The row of one campaign. What it had to measure is added to the task's record in `folder`."""
    began = time.perf_counter()
    record = f"sqlite:///{folder}/{task}.db"
    _prepared(task, record)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        url = f"sqlite:///{scratch}/run.db"
        campaign = _Arm.create(_config(task, arm, seed, evals), url, replay=record, replay_extend=True)
        result = campaign.run()
        journey = campaign.watched
        best = journey.state.archive.best()
        with open_store(url, create=False) as mine, open_store(record, create=False) as theirs:
            measured = _keep(mine, campaign.name, theirs)
            prompts = len(mine.meta_prompts(campaign.name))
    return {
        "task": task, "arm": arm, "seed": seed, "budget_evals": evals, "evaluations": result.evaluations,
        "correct": result.correct, "qd_score": result.qd_score, "cells": result.filled, "reachable": result.reachable,
        "best": best.objective if best else None, "fresh": journey.fresh,
        "winner": [best.candidate, dict(best.params)] if best else None,
        "qd_auc": qd_auc(sorted(journey.trace.items())),
        "roofline": result.best.roofline_fraction if result.best else None,
        "prompts": prompts, "measured": measured, "stopped": result.stop_reason,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


class Measured:
    """Campaigns on real kernels, by (task, arm, seed, evaluations), and duels of their best; one JSON line each."""

    def __init__(self, path: Path, folder: Path, evals: int, minutes: float | None) -> None:
        self._path, self._folder, self._evals = path, folder, evals
        self._until = time.monotonic() + 60 * minutes if minutes else float("inf")
        self._folder.mkdir(parents=True, exist_ok=True)
        text = self._path.read_text() if self._path.exists() else ""
        found = [json.loads(line) for line in text.splitlines()]
        self._rows, self._duels = {}, {}
        for row in found:
            key = (row["task"], row["arm"], row["seed"], row["budget_evals"])
            if "against" in row:
                self._duels[(*key, row["against"])] = row
            else:
                self._rows[key] = row

    def fill(self, task: str, wanted: Iterable[tuple[str, int]]) -> bool:
        """Runs what is missing, one after the other; False where the time is up first."""
        for arm, seed in wanted:
            if (task, arm, seed, self._evals) in self._rows:
                continue
            if time.monotonic() > self._until:
                print(f"{task}: time is up before {arm}, seed {seed}; the same command goes on", file=sys.stderr)
                return False
            row = run_kernels(task, arm, seed, self._evals, self._folder)
            self._rows[task, arm, seed, self._evals] = row
            self._append(row)
            print(f"{task} {arm} {seed}: {row['qd_score']:.2f} in {row['seconds']} s", file=sys.stderr)
        return True

    def duel(self, task: str, seed: int, arm: str, others: Sequence[str]) -> None:
        """Measures what `arm` found in turns with what each of `others` found, in the same minute."""
        missing = [other for other in others if (task, arm, seed, self._evals, other) not in self._duels]
        if not missing:
            return
        with open_store(f"sqlite:///{self._folder}/{task}.db", create=False) as record:
            campaign, known = record.campaign(_RECORD), {one.id: one for one in record.candidates(_RECORD)}
        setup = Setup.from_json(campaign.setup)
        with Judge(campaign.task, campaign.target, seed=0) as judge:
            judge.open()
            judge.set_context(setup.trace_signatures, setup.unfused)
            for other in missing:
                winners = [self._rows[task, one, seed, self._evals]["winner"] for one in (arm, other)]
                faster = 0.0  # of one and the same, or of none
                if None in winners:
                    faster = QD_OFFSET * ((winners[0] is None) - (winners[1] is None))
                elif winners[0] != winners[1]:
                    first, second = ((known[candidate], params) for candidate, params in winners)
                    faster = math.log2(judge.compare(first, second).ratio)
                row = {"task": task, "arm": arm, "seed": seed, "budget_evals": self._evals, "against": other}
                self._duels[task, arm, seed, self._evals, other] = {**row, "faster": faster}
                self._append({**row, "faster": faster})
                print(f"{task} {arm} {seed} over {other}: {2**faster:.2f}", file=sys.stderr)

    def faster(self, task: str, arm: str, other: str, seeds: Iterable[int]) -> list[float]:
        """log2 of how many times faster the winner of `arm` is than the winner of `other`, in the order of seeds."""
        return [self._duels[task, arm, seed, self._evals, other]["faster"] for seed in seeds]

    def _append(self, row: Mapping[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def scores(self, task: str, arm: str, seeds: Iterable[int], key: str = "qd_score") -> list[float]:
        """One number per campaign, in the order of seeds."""
        return [self._rows[task, arm, seed, self._evals][key] for seed in seeds]


def difference_interval(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> tuple[float, float, float]:
    """Mean difference of paired campaigns, and its bootstrap 95% interval over pairs."""
    gaps = np.asarray(ours) - np.asarray(theirs)
    drawn = np.random.default_rng(0).integers(len(gaps), size=(_DRAWS, len(gaps)))
    low, high = np.quantile(gaps[drawn].mean(axis=1), [0.025, 0.975])
    return float(gaps.mean()), float(low), float(high)


def seeds(text: str) -> range:
    """``10-19``, or one number."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


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
    """A campaign searched as its name says, and without the report at its end, which no arm needs."""

    watched: _Watched

    def pool(self) -> PromptPool:
        plain = super().pool()
        return ShuffledPool(plain, self.config.seed) if self.name == "shuffled" else plain

    def _loop(self, *args: Any, **more: Any) -> Loop:
        loop = super()._loop(*args, **more)
        if isinstance(loop.pool, ShuffledPool):
            loop.bandit = ShuffledBandit(loop.pool, USD_PER_S)
        self.watched = _Watched(**{one.name: getattr(loop.journey, one.name) for one in fields(loop.journey)})
        loop.journey = self.watched
        if self.name in _FLAT:
            assert isinstance(loop.space, ScheduleSpace)
            return FlatLoop.of(loop, _FLAT[self.name](loop.space, self.config.seed))
        return loop


@dataclass
class _Watched(Journey):
    """Keeps the QD score after every evaluation, confirmations included; in the end measures the best elite afresh.

    What a search holds to be its best was chosen for having measured well: the more it looked at once, the more of
    that was luck. So `fresh` counts, the median objective of three later confirmations (−5: no elite stood them).
    """

    trace: dict[int, float] = field(default_factory=dict)
    fresh: float = QD_OFFSET

    def progress(self, phase: str) -> None:
        super().progress(phase)
        self.trace[self.state.spent] = self.state.archive.qd_score

    def finish(self) -> None:
        self.race()
        while (best := self.state.archive.best()) is not None:
            candidate = self.state.candidates[best.candidate]
            again = [self.measurer.confirm(candidate, best.params) for _ in range(_AGAIN)]
            self.store.record_outcome(self.campaign, None, None, again)
            if not any(one.status in DISQUALIFYING for one in again):
                self.fresh = statistics.median(QD_OFFSET if one.objective is None else one.objective for one in again)
                return
            for one in again:
                self.state.note(one)
            self.state.settle()
