"""How a campaign ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from evoforge.campaign._claims import claim_of
from evoforge.campaign._queries import archive_of, charged, hot_and_cold, models_of, own_of
from evoforge.core import Elite, Kind, Status, point
from evoforge.llm import Totals
from evoforge.storage import CampaignRow, Store

if TYPE_CHECKING:
    from evoforge.campaign._campaign import Campaign

__all__ = ["Best", "Result", "summarise"]


@dataclass(frozen=True)
class Best:
    """The elite with the highest lower bound, as it was measured last, beside eager and compiled (`claim_of`).

    `low` and `high` bound `speedup_best_baseline`, the speed-up over the faster of both, at the level `confidence`:
    0.95. Without that last measurement all three are the archive's claim, None where one of the two was never timed:
    its one-sided 95% bound and the mirror of it, which together hold at 0.9. `speedup_hot` and `speedup_cold` are over
    the campaign's baseline, None where they were not measured. For a kernel with the flag ``prepacked`` the faster of
    both is the fastest of three: torch.compile with packed weights counts, too.
    """

    candidate: str
    cell: tuple[int, ...]
    latency_ms: float | None
    speedup_eager: float | None
    speedup_compiled: float | None
    speedup_best_baseline: float | None
    roofline_fraction: float | None
    params: Mapping[str, int]
    low: float | None = None
    high: float | None = None
    speedup_hot: float | None = None
    speedup_cold: float | None = None
    confidence: float | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """The last word of `run`. `split` maps a stage to its seconds; `idle` is the share of wall time
    in which no compile, kernel, reference or baseline process ran. `models` sums what models took: calls,
    tokens (cached ones apart), seconds, dollars that may have been spent unseen; empty without models."""

    campaign: str
    task: str
    target: str
    evaluations: int
    correct: int
    coverage: float
    qd_score: float
    wall_s: float
    usd: float
    stop_reason: str
    best: Best | None
    filled: int = 0
    reachable: int = 0
    split: Mapping[str, float] = field(default_factory=dict)
    models: Mapping[str, float] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 with at least one elite, or where only preparing was asked for; else 1."""
        if self.stop_reason == "prepared":
            return 0
        return 0 if self.best is not None and self.stop_reason != "at_bound" else 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise(
    campaign: Campaign, reason: str, *, notices: tuple[str, ...], run_s: float = 0.0, busy_s: float | None = None
) -> Result:
    """What the store says in the end. `run_s`: wall seconds of this run alone, which are not booked yet."""
    row = campaign.store.campaign(campaign.name)
    archive, _ = archive_of(campaign.store, row)
    best = archive.best()
    counts = campaign.store.counts(campaign.name, Kind.TRIAL)
    split = campaign.store.seconds(campaign.name)
    if busy_s is not None:
        split["idle"] = max(run_s - busy_s, 0.0)
        split["idle_share"] = split["idle"] / run_s if run_s else 0.0
    spent = Totals.of(row.call for row in campaign.store.calls(campaign.name, texts=False))
    return Result(
        campaign=campaign.name,
        task=campaign.row.task.name,
        target=campaign.row.target.spec,
        evaluations=charged(counts),
        correct=counts.get(Status.CORRECT, 0),
        coverage=archive.coverage,
        qd_score=archive.qd_score,
        wall_s=campaign.row.wall_s + run_s,
        usd=spent.usd,
        models=models_of(spent),
        stop_reason=reason,
        best=_best(campaign.store, row, best) if best else None,
        filled=len(archive),
        reachable=len(archive.reachable),
        split=split,
        notices=notices,
    )


def _best(store: Store, row: CampaignRow, elite: Elite) -> Best:
    own = own_of(store.evaluations(campaign=row.name, candidate=elite.candidate))[point(elite.candidate, elite.params)]
    claim = claim_of(row, elite, own)
    trials = [trial for trial in own if trial.kind is Kind.TRIAL]
    shown = claim.fresh or (trials[0] if trials else None)
    low, middle, high = claim.over_faster or (None, None, None)
    heats = hot_and_cold(claim.fresh)
    return Best(
        candidate=elite.candidate,
        cell=elite.cell,
        latency_ms=shown.latency_ms if shown else None,
        speedup_eager=claim.speedup_eager,
        speedup_compiled=claim.speedup_compiled,
        speedup_best_baseline=middle,
        roofline_fraction=shown.roofline_fraction if shown else None,
        params=dict(elite.params),
        low=low,
        high=high,
        speedup_hot=heats["speedup_hot"],
        speedup_cold=heats["speedup_cold"],
        confidence=None if low is None else claim.confidence,
        flags=shown.flags if shown else (),
    )
