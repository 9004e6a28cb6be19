"""Records ↔ rows. A row is a flat dict with the columns of its table; nested values are JSON text.

Both stores go through here, so both give back exactly what JSON keeps: floats to the last bit (NaN
and infinities too), tuples inside `facts` as lists.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from evoforge.core import (
    PROTOCOL_VERSION,
    Block,
    Candidate,
    Cell,
    Evaluation,
    Kind,
    MetaPrompt,
    Params,
    Status,
    Strategy,
    Target,
    Task,
    Tolerance,
    Workload,
    WorkloadTiming,
    storable,
)
from evoforge.storage._base import (
    CampaignRow,
    CampaignSetup,
    EvaluationRow,
    MetaPromptRow,
    Placement,
    PlacementRow,
    ProposalRow,
)

__all__ = [
    "Row",
    "campaign_from_row",
    "campaign_to_row",
    "candidate_from_row",
    "candidate_to_row",
    "dump",
    "evaluation_from_row",
    "evaluation_to_row",
    "meta_prompt_from_row",
    "meta_prompt_to_row",
    "now",
    "params_hash",
    "placement_from_row",
    "placement_to_row",
    "proposal_from_row",
    "proposal_to_row",
    "target_from_json",
    "target_to_json",
    "target_to_row",
    "task_from_json",
    "task_to_json",
    "task_to_row",
]

Row = dict[str, Any]


def now() -> str:
    """UTC, ISO 8601, milliseconds: sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def dump(value: Any) -> str:
    """Compact JSON text; keys keep their order, since a genome's order can steer a generator."""
    return json.dumps(value, separators=(",", ":"))


def params_hash(params: Params) -> str:
    """16 hex digits over the values, whatever their order."""
    return hashlib.sha256(dump(sorted(params.items())).encode()).hexdigest()[:16]


def _cell_text(cell: Cell | None) -> str | None:
    return None if cell is None else ",".join(str(level) for level in cell)


def _cell(text: str | None) -> Cell | None:
    return None if text is None else tuple(int(level) for level in text.split(","))


# Tasks and targets


def _plain(value: Mapping[str, Any]) -> Any:
    # As in `Task.id` and `Target.id`: what JSON does not know becomes its text.
    return json.loads(json.dumps(dict(value), default=str))


def task_to_json(task: Task) -> Row:
    return {
        "name": task.name,
        "source": task.source,
        "workloads": [[workload.name, _plain(workload.overrides)] for workload in task.workloads],
        "tolerance": [task.tolerance.precision, task.tolerance.nonfinite, task.tolerance.factor],
        "overrides": _plain(task.overrides),
        "path": task.path,
        "entry": task.entry,
        "root": task.root,
        "imported_source": task.imported_source,
    }


def task_from_json(data: Mapping[str, Any]) -> Task:
    return Task(
        **{
            **data,
            "workloads": tuple(Workload(name, overrides) for name, overrides in data["workloads"]),
            "tolerance": Tolerance(*data["tolerance"]),
        }
    )


def target_to_json(target: Target) -> Row:
    return {
        "spec": target.spec,
        "kind": target.kind,
        "threads": target.threads,
        "isa": target.isa,
        "fingerprint": _plain(target.fingerprint),
        "ceilings": dict(target.ceilings),
    }


def target_from_json(data: Mapping[str, Any]) -> Target:
    return Target(**data)


def task_to_row(task: Task) -> Row:
    return {"id": task.id, "body": dump(task_to_json(task)), "created": now()}


def target_to_row(target: Target) -> Row:
    return {"id": target.id, "body": dump(target_to_json(target)), "created": now()}


# Campaigns


def campaign_to_row(given: CampaignSetup) -> Row:
    task, when = given.task, now()
    return {
        "name": given.name,
        "language": given.language,
        "seed": given.seed,
        "task": task.id,
        "target": given.target.id,
        # What an id does not cover belongs to the campaign: two may run one task from two places.
        "task_place": dump({"name": task.name, "path": task.path, "entry": task.entry, "root": task.root}),
        "ceilings": dump(dict(given.target.ceilings)),
        "config": dump(dict(given.config)),
        "descriptor": dump(dict(given.descriptor)),
        "reachable": dump(None if given.reachable is None else [list(cell) for cell in given.reachable]),
        "setup": dump(dict(given.setup)),
        "protocol": PROTOCOL_VERSION,
        "state": "created",
        "stop_reason": None,
        "wall_s": 0.0,
        "lock_owner": None,
        "created": when,
        "updated": when,
    }


def campaign_from_row(row: Mapping[str, Any], task_body: str, target_body: str) -> CampaignRow:
    reachable = json.loads(row["reachable"])
    return CampaignRow(
        name=row["name"],
        language=row["language"],
        seed=row["seed"],
        task=replace(task_from_json(json.loads(task_body)), **json.loads(row["task_place"])),
        target=replace(target_from_json(json.loads(target_body)), ceilings=json.loads(row["ceilings"])),
        config=json.loads(row["config"]),
        descriptor=json.loads(row["descriptor"]),
        reachable=None if reachable is None else tuple(tuple(cell) for cell in reachable),
        setup=json.loads(row["setup"]),
        protocol=row["protocol"],
        state=row["state"],
        stop_reason=row["stop_reason"],
        wall_s=row["wall_s"],
        created=row["created"],
        updated=row["updated"],
    )


# Candidates and proposals


def candidate_to_row(candidate: Candidate) -> Row:
    return {
        "id": candidate.id,
        "language": candidate.language,
        "source": candidate.source,
        "genome": None if candidate.genome is None else dump(dict(candidate.genome)),
        "operator": candidate.operator,
        "meta_prompt": candidate.meta_prompt,
        "model": candidate.model,
        "licence": candidate.licence,
        "notes": dump(dict(candidate.notes)),
        "created": now(),
    }


def candidate_from_row(row: Mapping[str, Any], parents: Sequence[str]) -> Candidate:
    return Candidate(
        language=row["language"],
        source=row["source"],
        genome=None if row["genome"] is None else json.loads(row["genome"]),
        parents=tuple(parents),
        operator=row["operator"],
        meta_prompt=row["meta_prompt"],
        model=row["model"],
        licence=row["licence"],
        notes=json.loads(row["notes"]),
    )


def proposal_to_row(campaign: str, ticket: int, candidate: Candidate, emitter: str, target_cell: Cell | None) -> Row:
    return {
        "campaign": campaign,
        "ticket": ticket,
        "candidate": candidate.id,
        "operator": candidate.operator,
        "parents": dump(list(candidate.parents)),
        "emitter": emitter,
        "meta_prompt": candidate.meta_prompt,
        "model": candidate.model,
        "target_cell": _cell_text(target_cell),
        "created": now(),
    }


def proposal_from_row(row: Mapping[str, Any]) -> ProposalRow:
    return ProposalRow(
        **{**row, "parents": tuple(json.loads(row["parents"])), "target_cell": _cell(row["target_cell"])}
    )


# Evaluations


_BLOCKS = ("blocks", "hot", "cold")


def _timing_to_json(timing: WorkloadTiming) -> Row:
    """What few kernels have stands there only where it was measured: hot and cold blocks, the frozen side."""
    lists = {name: [_block_to_json(block) for block in getattr(timing, name)] for name in _BLOCKS}
    return {
        "workload": timing.workload,
        "baseline": timing.baseline,
        "bound_ms": timing.bound_ms,
        **{name: blocks for name, blocks in lists.items() if blocks or name == "blocks"},
    }


def _block_to_json(block: Block) -> list[float | None]:
    frozen = [] if block.frozen_ms is None else [block.frozen_ms]
    return [block.process, block.candidate_ms, block.eager_ms, block.compiled_ms, *frozen]


def _timing_from_json(data: Mapping[str, Any]) -> WorkloadTiming:
    lists = {name: tuple(Block(*block) for block in data.get(name, ())) for name in _BLOCKS}
    return WorkloadTiming(**{**data, **lists})


def evaluation_to_row(campaign: str, ticket: int | None, evaluation: Evaluation) -> Row:
    """The columns that queries read, and `body` with the rest; there is no `id` yet."""
    body = {
        "reason": evaluation.reason,
        "timings": [_timing_to_json(timing) for timing in evaluation.timings],
        "max_error": evaluation.max_error,
        "facts": dict(evaluation.facts),
        "flags": list(evaluation.flags),
        "seconds": dict(evaluation.seconds),
        "sandbox": evaluation.sandbox,
    }
    return {
        "campaign": campaign,
        "ticket": ticket,
        "candidate": evaluation.candidate,
        "params": dump(dict(evaluation.params)),
        "params_hash": params_hash(evaluation.params),
        "task": evaluation.task,
        "target": evaluation.target,
        "kind": evaluation.kind.value,
        "status": evaluation.status.value,
        "protocol": evaluation.protocol,
        "cell": _cell_text(evaluation.cell),
        "objective": evaluation.objective,
        "latency_ms": evaluation.latency_ms,
        "body": dump(body),
        "created": now(),
    }


def evaluation_from_row(row: Mapping[str, Any]) -> EvaluationRow:
    """Raises ValueError (also for JSON that is cut short) where the row breaks the record's rules."""
    body = json.loads(row["body"])
    evaluation = Evaluation(
        candidate=row["candidate"],
        params=json.loads(row["params"]),
        task=row["task"],
        target=row["target"],
        status=Status(row["status"]),
        kind=Kind(row["kind"]),
        protocol=row["protocol"],
        cell=_cell(row["cell"]),
        **{
            **body,
            "timings": tuple(_timing_from_json(timing) for timing in body["timings"]),
            "flags": tuple(body["flags"]),
        },
    )
    return EvaluationRow(row["id"], row["campaign"], row["ticket"], evaluation, row["created"])


# Placements and meta-prompts


def placement_to_row(campaign: str, ticket: int | None, placement: Placement, evaluation: int) -> Row:
    return {
        "campaign": campaign,
        "ticket": ticket,
        "action": placement.action,
        "cell": _cell_text(placement.cell),
        "candidate": placement.candidate,
        "params": dump(dict(placement.params)),
        "objective": placement.objective,
        "lower": placement.lower,
        "reason": storable(placement.reason),
        "evaluation": evaluation,
        "created": now(),
    }


def placement_from_row(row: Mapping[str, Any]) -> PlacementRow:
    placement = Placement(
        action=row["action"],
        cell=_cell(row["cell"]) or (),
        candidate=row["candidate"],
        params=json.loads(row["params"]),
        objective=row["objective"],
        lower=row["lower"],
        reason=row["reason"],
        evaluation=row["evaluation"],
    )
    return PlacementRow(row["id"], row["campaign"], row["ticket"], placement, row["created"])


def meta_prompt_to_row(campaign: str, meta_prompt: MetaPrompt, displaced: Sequence[str]) -> Row:
    strategy = meta_prompt.strategy
    body = {
        "language": meta_prompt.language,
        "strategy": [dict(strategy.operators), dict(strategy.stress), dict(strategy.priors)],
        "sections": list(meta_prompt.sections.items()),  # a list: their order is the file's
        "parents": list(meta_prompt.parents),
        "displaced": list(displaced),
    }
    return {
        "campaign": campaign,
        "name": meta_prompt.name,
        "version": meta_prompt.version,
        "body": dump(body),
        "created": now(),
    }


def meta_prompt_from_row(row: Mapping[str, Any]) -> MetaPromptRow:
    body = json.loads(row["body"])
    meta_prompt = MetaPrompt(
        name=row["name"],
        version=row["version"],
        language=body["language"],
        strategy=Strategy(*body["strategy"]),
        sections=dict(body["sections"]),
        parents=tuple(body["parents"]),
    )
    return MetaPromptRow(row["campaign"], meta_prompt, row["created"], tuple(body.get("displaced", ())))
