"""What the store holds, read for people and programs. Nothing here writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from evoforge.archives import DISQUALIFYING, Archive, fold_confirmations
from evoforge.archives.descriptor import Descriptor
from evoforge.campaign._claims import Claim, claim_of
from evoforge.core import Candidate, Cell, Elite, Evaluation, Kind, Point, Status, point
from evoforge.llm import Totals
from evoforge.storage import CampaignRow, EvaluationRow, ProposalRow, Store, open_store

__all__ = [
    "archive_of",
    "campaigns",
    "charged",
    "claims_by_candidate",
    "elites",
    "hot_and_cold",
    "lineage",
    "models_of",
    "own_of",
    "report",
    "show",
    "status",
]


def hot_and_cold(evaluation: Evaluation | None) -> dict[str, float | None]:
    """`latency_hot_ms`, `speedup_hot`, `latency_cold_ms`, `speedup_cold`, over the campaign's baseline.

    None where a workload was not timed so, or cannot be (a hot one that does not fit half of the L2).
    """
    found: dict[str, float | None] = {}
    heats: tuple[Literal["hot", "cold"], ...] = ("hot", "cold")
    for heat in heats:
        at = evaluation.at(heat) if evaluation else None
        found[f"latency_{heat}_ms"] = at.latency_ms if at else None
        found[f"speedup_{heat}"] = at.speedup() if at else None
    return found


def report(evaluation: Evaluation, cell: Cell | None) -> dict[str, Any]:
    """What people and programs are told of one kernel's verdict."""
    return {
        "status": str(evaluation.status),
        "reason": evaluation.reason,
        "latency_ms": evaluation.latency_ms,
        "speedup_eager": evaluation.speedup("eager"),
        "speedup_compiled": evaluation.speedup("compiled"),
        "speedup_best_baseline": evaluation.speedup_best_baseline,
        "roofline_fraction": evaluation.roofline_fraction,
        **hot_and_cold(evaluation),
        "cell": cell,
        "max_error": evaluation.max_error,
        "flags": list(evaluation.flags),
        "candidate": evaluation.candidate,
        "params": dict(evaluation.params),
        "seconds": dict(evaluation.seconds),
        "sandbox": evaluation.sandbox,
    }


def archive_of(store: Store, row: CampaignRow) -> tuple[Archive, dict[str, Candidate]]:
    """The campaign's archive, folded from its stored evaluations, and candidates by id: those that were confirmed."""
    rows, candidates = store.claims(row.name)
    return _folded(store, row, rows, candidates), {candidate.id: candidate for candidate in candidates}


def own_of(rows: Sequence[EvaluationRow]) -> Mapping[Point, Sequence[Evaluation]]:
    """Evaluations by point, in their order; none of a point that has none."""
    own: dict[Point, list[Evaluation]] = defaultdict(list)
    for item in rows:
        own[point(item.evaluation.candidate, item.evaluation.params)].append(item.evaluation)
    return own


def _folded(store: Store, row: CampaignRow, rows: Sequence[EvaluationRow], candidates: Sequence[Candidate]) -> Archive:
    archive = Archive(reachable=_reachable(row))
    archive.rebuild(_would_be_elites(store, row, rows, candidates))
    return archive


def _would_be_elites(
    store: Store, row: CampaignRow, rows: Sequence[EvaluationRow], candidates: Sequence[Candidate]
) -> list[Elite]:
    tickets: dict[str, int] = {}
    for proposal in store.proposals(row.name):
        tickets.setdefault(proposal.candidate, proposal.ticket)
    return fold_confirmations(
        [item.evaluation for item in rows],
        source_lengths={candidate.id: len(candidate.source) for candidate in candidates},
        tickets=tickets,
    )


def _reachable(row: CampaignRow) -> frozenset[Cell] | None:
    cells = row.setup.get("reachable")
    return None if cells is None else frozenset(tuple(cell) for cell in cells)


def campaigns(store_url: str) -> list[dict[str, Any]]:
    """One row per campaign, in order of creation."""
    with open_store(store_url, create=False) as store:
        return [_summary(store, row)[0] for row in store.campaigns()]


def _standing(store: Store, row: CampaignRow) -> tuple[str, str | None]:
    """State and stop reason; of a campaign whose process was killed before it could write them, what is true now."""
    if row.state == "running" and not store.is_held(row.name):
        row = store.campaign(row.name)  # it may have ended in between
        if row.state == "running":
            return "interrupted", "its process ended without a word, as far as this machine can tell"
    return row.state, row.stop_reason or None


def _summary(store: Store, row: CampaignRow) -> tuple[dict[str, Any], Archive]:
    state, reason = _standing(store, row)
    counts = store.counts(row.name, Kind.TRIAL)
    rows, confirmed = store.claims(row.name)
    archive = _folded(store, row, rows, confirmed)
    best = archive.best()
    claim = claim_of(row, best, own_of(rows)[point(best.candidate, best.params)]) if best else None
    spent = Totals.of(made.call for made in store.calls(row.name, texts=False))
    summary = {
        "campaign": row.name,
        "state": state,
        "stop_reason": reason,
        "task": row.task.name,
        "target": row.target.spec,
        "language": row.language,
        "evaluations": charged(counts),
        "correct": counts.get(Status.CORRECT, 0),
        "filled": len(archive),
        "reachable": len(archive.reachable),
        "coverage": archive.coverage,
        "qd_score": archive.qd_score,
        "wall_s": row.wall_s,
        "usd": spent.usd,
        "models": models_of(spent),
        "speedup_best_baseline": claim.over_faster[1] if claim and claim.over_faster else None,
        "created": row.created,
    }
    return summary, archive


def models_of(spent: Totals) -> dict[str, float]:
    """What models took, dollars that were surely spent aside; empty without calls."""
    if not spent.calls:
        return {}
    return {
        "calls": spent.calls, "requests": spent.requests, "prompt_tokens": spent.usage.prompt_tokens,
        "cached_tokens": spent.usage.cached_tokens, "completion_tokens": spent.usage.completion_tokens,
        "seconds": spent.seconds, "unsure_usd": spent.unsure_usd,
    }  # fmt: skip


def charged(counts: Mapping[Status, int]) -> int:
    """Of trials counted by status, those that cost an evaluation of the budget."""
    return sum(count for status, count in counts.items() if status.charged)


def status(name: str, store_url: str) -> dict[str, Any]:
    """How a campaign stands: its summary, baselines, noise, counts by status and reachable cells.

    `aa_margin` is what a binary shows against itself, in log2; times are milliseconds by workload (and side).
    """
    with open_store(store_url, create=False) as store:
        row = store.campaign(name)
        summary, archive = _summary(store, row)
        best = archive.best()
        counts = store.counts(row.name, Kind.TRIAL)
        return {
            **summary,
            "counts": {str(status): count for status, count in counts.items()},
            "reasons": _reasons(store, row),
            "confirmations": sum(store.counts(row.name, Kind.CONFIRM).values()),
            "baseline": row.setup.get("baseline"),
            "baseline_ms": row.setup.get("baseline_ms"),
            "bound_ms": row.setup.get("bounds_ms"),
            "aa_margin": row.setup.get("aa_margin"),
            "notices": row.setup.get("notices", []),
            "best_cell": list(best.cell) if best else None,
            "axes": list(Descriptor.from_json(row.descriptor).axes),
            "reachable_cells": [list(cell) for cell in sorted(archive.reachable)],
        }


def _reasons(store: Store, row: CampaignRow) -> dict[str, str]:
    """The latest reason for each status that is not correct: what to mend when nothing works."""
    latest = {str(e.status): e.reason for e in (item.evaluation for item in store.last_trials(row.name)) if e.reason}
    return dict(sorted(latest.items()))


def elites(name: str, store_url: str) -> list[dict[str, Any]]:
    """Every elite of a campaign, in the order of cells.

    `objective` and `lower` (log2) are what the archive ranks by; `speedup`, its 95% bound `speedup_low` and what stands
    beside them is what is claimed (`claim_of`): as it was measured last.
    """
    with open_store(store_url, create=False) as store:
        row = store.campaign(name)
        rows, confirmed = store.claims(name)
        candidates = {candidate.id: candidate for candidate in confirmed}
        own = own_of(rows)
        asked = {proposal.candidate: proposal for proposal in store.proposals(name)}
        found = []
        for elite in _folded(store, row, rows, confirmed):
            measured = own[point(elite.candidate, elite.params)]
            claim = claim_of(row, elite, measured)
            found.append(_elite(elite, candidates[elite.candidate], asked[elite.candidate], measured, claim))
        return found


def _elite(
    elite: Elite, candidate: Candidate, asked: ProposalRow, own: Sequence[Evaluation], claim: Claim
) -> dict[str, Any]:
    timed = [e for e in own if e.status is Status.CORRECT]
    shown = claim.fresh or (timed[-1] if timed else None)
    low, speedup, _ = claim.over_baseline
    return {
        "cell": list(elite.cell),
        "candidate": elite.candidate,
        "params": dict(elite.params),
        "objective": elite.objective,
        "lower": elite.lower,
        "speedup": speedup,
        "speedup_low": low,
        "speedup_eager": claim.speedup_eager,
        "speedup_compiled": claim.speedup_compiled,
        "latency_ms": shown.latency_ms if shown else None,
        "roofline_fraction": shown.roofline_fraction if shown else None,
        **hot_and_cold(shown),
        "source_lines": candidate.source.count("\n"),
        "operator": asked.operator,  # the candidate's own tell of the first campaign that had this text
        "meta_prompt": asked.meta_prompt,
        "licence": candidate.licence,
        "flags": sorted({flag for e in timed for flag in e.flags}),
    }


def show(prefix: str, store_url: str) -> dict[str, Any]:
    """A candidate with its source, genome and every evaluation."""
    with open_store(store_url, create=False) as store:
        candidate = store.candidate(prefix)
        return {
            "candidate": candidate.id,
            "language": candidate.language,
            "operator": candidate.operator,
            "meta_prompt": candidate.meta_prompt,
            "model": candidate.model,
            "licence": candidate.licence,
            "parents": list(candidate.parents),
            "genome": candidate.genome,
            "source": candidate.source,
            "evaluations": [
                {
                    "campaign": item.campaign,
                    "ticket": item.ticket,
                    "status": str(item.evaluation.status),
                    "kind": str(item.evaluation.kind),
                    "reason": item.evaluation.reason,
                    "cell": item.evaluation.cell,
                    "params": dict(item.evaluation.params),
                    "speedup": item.evaluation.speedup(),
                    "latency_ms": item.evaluation.latency_ms,
                    **hot_and_cold(item.evaluation),
                    "max_error": item.evaluation.max_error,
                    "flags": list(item.evaluation.flags),
                    "sandbox": item.evaluation.sandbox,
                    "created": item.created,
                }
                for item in store.evaluations(candidate=candidate.id)
            ],
        }


def lineage(prefix: str, store_url: str) -> dict[str, Any]:
    """A candidate and its ancestors: nodes with what says most of each (cell, speed-up), edges from child to parent.

    Numbers of several campaigns are of several tasks or machines: those of the campaign that measured the candidate
    last are given, of an ancestor that it did not measure those of whoever did so last; `campaign` says whose.
    """
    with open_store(store_url, create=False) as store:
        root = store.candidate(prefix)
        rows = store.evaluations(candidate=root.id)
        campaign = rows[-1].campaign if rows else None
        edges = store.lineage(root.id)
        names = list(dict.fromkeys([root.id, *(edge.parent for edge in edges)]))
        claims: dict[str, dict[str, tuple[Elite, Claim]]] = {}
        return {
            "candidate": root.id,
            "campaign": campaign,
            "nodes": [_node(store, store.candidate(name), campaign, claims) for name in names],
            "edges": [{"child": edge.child, "parent": edge.parent} for edge in edges],
        }


def telling(rows: Sequence[Evaluation]) -> Evaluation | None:
    """The evaluation that says most of a candidate: of what no later one disproved the fastest, or what did.

    A confirmation says more than a trial: the fastest of several trials was lucky, too.
    """
    failed = [row for row in rows if row.status in DISQUALIFYING]

    def at(row: Evaluation) -> tuple[Point, str, str]:
        return point(row.candidate, row.params), row.task, row.target

    wrong = {at(row) for row in failed}
    right = [row for row in rows if row.status is Status.CORRECT and at(row) not in wrong]
    for kind in (Kind.CONFIRM, Kind.TRIAL):
        if timed := [row for row in right if row.kind is kind]:
            return max(timed, key=lambda row: row.height)
    return failed[-1] if failed else rows[-1] if rows else None


def claims_by_candidate(store: Store, campaign: str) -> dict[str, tuple[Elite, Claim]]:
    """What is claimed of every candidate that was confirmed; of one with several points that of the highest rank."""
    row = store.campaign(campaign)
    rows, confirmed = store.claims(campaign)
    own = own_of(rows)
    ranked = sorted(_would_be_elites(store, row, rows, confirmed), key=lambda elite: elite.rank)
    return {e.candidate: (e, claim_of(row, e, own[point(e.candidate, e.params)])) for e in ranked}


def _node(
    store: Store, candidate: Candidate, campaign: str | None, claims: dict[str, dict[str, tuple[Elite, Claim]]]
) -> dict[str, Any]:
    """`claims`: of campaigns that were looked at, by candidate; those of others are added."""
    rows = store.evaluations(candidate=candidate.id)
    if rows and all(row.campaign != campaign for row in rows):
        campaign = rows[-1].campaign
    cell, speedup = None, None
    if campaign is not None and rows:
        if campaign not in claims:
            claims[campaign] = claims_by_candidate(store, campaign)
        if candidate.id in claims[campaign]:
            elite, claim = claims[campaign][candidate.id]
            cell, speedup = elite.cell, claim.over_baseline[1]
        else:
            best = telling([row.evaluation for row in rows if row.campaign == campaign])
            if best is not None and best.status is Status.CORRECT:
                cell, speedup = best.cell, best.speedup()
    return {
        "candidate": candidate.id,
        "operator": candidate.operator,
        "meta_prompt": candidate.meta_prompt,
        "campaign": campaign if rows else None,
        "cell": cell,
        "speedup": speedup,
    }
