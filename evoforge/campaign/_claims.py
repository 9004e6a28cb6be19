"""What is claimed of a kernel: one rule, wherever its speed-up is named."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evoforge.archives import CONFIDENCE, MIRRORED, speedup_interval
from evoforge.campaign._setup import side_leads
from evoforge.core import Elite, Evaluation, Kind, Status
from evoforge.storage import CampaignRow

__all__ = ["Claim", "Interval", "beside_packed", "claim_of", "over_the_faster"]

Interval = tuple[float, float, float]
"""(low, middle, high) of a speed-up."""


@dataclass(frozen=True)
class Claim:
    """Speed-ups of one kernel, all of one age.

    `over_baseline` is over the campaign's baseline, `over_faster` over the faster of eager and compiled (None: one of
    them was never timed); their intervals hold at the level `confidence`. A side is None where it was never timed.
    `fresh` is the measurement that says so; None: it is what the search confirmed, its one-sided bound and the mirror
    of it.
    """

    over_baseline: Interval
    over_faster: Interval | None
    confidence: float
    speedup_eager: float | None
    speedup_compiled: float | None
    fresh: Evaluation | None = None


def claim_of(row: CampaignRow, elite: Elite, own: Sequence[Evaluation]) -> Claim:
    """What is claimed of `elite`, of which a campaign made the evaluations `own`, in stored order.

    The last measurement beside eager and compiled (a campaign's report, a bench) says it, where there is one: the
    search chose what looked best, so what is measured later is nearer to the truth. It moves no rank: those that were
    not measured again would be ranked by their luck. Until then it is the archive's claim; a side that was not timed
    beside the kernel lies as far from the baseline as when that was chosen.
    """
    best = row.config.get("baseline", "best") == "best"
    for fresh in reversed(own):
        both = over_the_faster(fresh) if fresh.kind is Kind.BENCH else None
        base = speedup_interval([fresh]) if both else None
        if both and base:
            sides = fresh.speedup("eager"), fresh.speedup("compiled")
            return Claim(both if best else base, both, CONFIDENCE, *sides, fresh)
    archived = 2**elite.lower, 2**elite.objective, 2 ** (2 * elite.objective - elite.lower)
    leads = side_leads(row.setup.get("baseline"), row.setup.get("baseline_ms"))
    if beside_packed(own):
        leads = dict.fromkeys(leads)  # how far eager and compiled lie from that side is not known
    eager, compiled = (None if lead is None else 2 ** (elite.objective + lead) for lead in leads.values())
    return Claim(archived, archived if best else _over_the_better(row, archived), MIRRORED, eager, compiled)


def beside_packed(own: Iterable[Evaluation]) -> bool:
    """Whether ratios are to torch.compile with packed weights, which is no campaign's baseline."""
    return any(timing.baseline == "frozen" for one in own for timing in one.timings)


def over_the_faster(fresh: Evaluation) -> Interval | None:
    """The speed-up of one measurement over the faster of the sides that it was timed beside, with its 95% interval.

    Medians over processes and over blocks may differ where times have two modes: the lower one counts, so that a
    speed-up over the faster side never stands beside a lower one over either. None where fewer than two processes
    timed it.
    """
    over_blocks = fresh.speedup_best_baseline if fresh.status is Status.CORRECT else None
    found = speedup_interval([fresh.against_fastest()]) if over_blocks is not None else None
    if found is None or over_blocks is None:
        return None
    low, over_processes, high = found
    middle = min(over_processes, over_blocks)
    return min(low, middle), middle, high


def _over_the_better(row: CampaignRow, archived: Interval) -> Interval | None:
    """From speed-ups over the campaign's baseline, one of eager and compiled; None where the other was not timed."""
    leads = []
    for workload, times in (row.setup.get("baseline_ms") or {}).items():
        base, sides = times.get(row.setup["baseline"][workload]), [times.get("eager"), times.get("compiled")]
        if not base or not all(sides):
            return None
        leads.append(math.log2(min(sides) / base))
    if not leads:
        return None
    low, middle, high = (over * 2 ** statistics.fmean(leads) for over in archived)
    return low, middle, high
