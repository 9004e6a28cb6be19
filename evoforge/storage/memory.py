"""A store in this process's memory: for tests and for one-off use from Python.

It keeps the same rows as the SQL store, nested values as JSON text included, so that nothing
passes here that would fail there.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from evoforge.core import Candidate, Cell, Evaluation, Kind, MetaPrompt, Params, Status, Target, Task
from evoforge.errors import CampaignLockedError, StoreError
from evoforge.storage import _call_records, _names, _records, _rules
from evoforge.storage._base import (
    CampaignRow,
    CampaignSetup,
    Edge,
    EvaluationRow,
    MetaPromptRow,
    Placement,
    PlacementRow,
    ProposalRow,
    Store,
)
from evoforge.storage._check import TABLES, find_problems
from evoforge.storage._memory_calls import MemoryCalls
from evoforge.storage._owner import Owner
from evoforge.storage._records import Row

__all__ = ["MemoryStore"]


class MemoryStore(MemoryCalls, Store):
    """`Store` without a disk. Lost with the process."""

    def __init__(self) -> None:
        self.url = "memory://"
        self._rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._lock = threading.RLock()
        self._next_id = 0

    # Campaigns

    def create_campaign(
        self,
        name: str | None,
        *,
        task: Task,
        target: Target,
        language: str,
        seed: int,
        config: Mapping[str, Any],
        descriptor: Mapping[str, Any],
        reachable: Sequence[Cell] | None = None,
        setup: Mapping[str, Any] | None = None,
    ) -> CampaignRow:
        with self._lock:
            name = _names.new_name(name, task.name, self._names())
            given = CampaignSetup(name, task, target, language, seed, config, descriptor, reachable, setup or {})
            row = _records.campaign_to_row(given)
            self._add_once("tasks", _records.task_to_row(task))
            self._add_once("targets", _records.target_to_row(target))
            self._rows["campaigns"].append(row)
            return self._campaign(row)

    def campaign(self, name: str) -> CampaignRow:
        with self._lock:
            return self._campaign(self._campaign_row(name))

    def campaigns(self) -> list[CampaignRow]:
        with self._lock:
            return [self._campaign(row) for row in self._rows["campaigns"]]

    def update_campaign(
        self,
        name: str,
        *,
        state: str | None = None,
        stop_reason: str | None = None,
        wall_s: float | None = None,
        setup: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        with self._lock:
            self._campaign_row(name).update(_rules.campaign_changes(state, stop_reason, wall_s, setup, config))

    def delete_campaign(self, name: str) -> None:
        with self._lock:
            row = self._campaign_row(name)
            self._refuse_if_locked(row)
            self._rows["campaigns"].remove(row)
            for table in ("proposals", "evaluations", "placements", "meta_prompts", "llm_calls", "tickets"):
                self._rows[table] = [row for row in self._rows[table] if row["campaign"] != name]
            self._drop_orphans()

    @contextmanager
    def lock_campaign(self, name: str, owner: Owner | None = None) -> Iterator[Owner]:
        owner = owner or Owner.current()
        with self._lock:
            row = self._campaign_row(name)
            self._refuse_if_locked(row)
            row["lock_owner"] = owner.to_text()
        try:
            yield owner
        finally:
            with self._lock:
                if row["lock_owner"] == owner.to_text():
                    row["lock_owner"] = None

    def is_held(self, name: str) -> bool:
        with self._lock:
            return Owner.lives(self._campaign_row(name)["lock_owner"])

    # Outcomes

    def record_outcome(
        self,
        campaign: str,
        ticket: int | None,
        candidate: Candidate | None,
        evaluations: Sequence[Evaluation] = (),
        placements: Sequence[Placement] = (),
        *,
        emitter: str = "",
        target_cell: Cell | None = None,
    ) -> list[int]:
        with self._lock:
            self._campaign_row(campaign)
            before = {table: len(rows) for table, rows in self._rows.items()}
            try:
                if candidate is not None:
                    self._propose(campaign, ticket, candidate, emitter, target_cell)
                ids = [self._evaluate(campaign, ticket, evaluation) for evaluation in evaluations]
                for placement in placements:
                    self._place(campaign, ticket, placement)
            except BaseException:
                for table, length in before.items():
                    del self._rows[table][length:]
                raise
            return ids

    def evaluations(
        self,
        *,
        campaign: str | None = None,
        candidate: str | None = None,
        kind: Kind | None = None,
        status: Status | None = None,
        task: str | None = None,
        target: str | None = None,
    ) -> list[EvaluationRow]:
        wanted = _rules.conditions(
            campaign=campaign, candidate=candidate, kind=kind, status=status, task=task, target=target
        )
        return _rules.read_evaluations(self._select("evaluations", wanted))

    def claims(self, campaign: str) -> tuple[list[EvaluationRow], list[Candidate]]:
        with self._lock:
            rows = self._select("evaluations", {"campaign": campaign})
            names = {row["candidate"] for row in rows if row["kind"] == Kind.CONFIRM}
            own = [row for row in rows if row["candidate"] in names]
            return _rules.read_evaluations(own), [self._candidate(name) for name in names]

    def last_trials(self, campaign: str) -> list[EvaluationRow]:
        rows = self._select("evaluations", {"campaign": campaign, "kind": str(Kind.TRIAL)})
        latest = {row["status"]: row for row in rows}
        return _rules.read_evaluations(sorted(latest.values(), key=lambda row: int(row["id"])))

    def find_recorded(
        self, candidate: str, params: Params, task: str, target: str, protocol: int, kind: Kind
    ) -> list[EvaluationRow]:
        wanted = _rules.conditions(
            candidate=candidate,
            params_hash=_records.params_hash(params),
            task=task,
            target=target,
            protocol=protocol,
            kind=kind,
        )
        return _rules.read_evaluations(self._select("evaluations", wanted))

    def counts(self, campaign: str, kind: Kind | None = None) -> dict[Status, int]:
        rows = self._select("evaluations", _rules.conditions(campaign=campaign, kind=kind))
        return dict(Counter(Status(row["status"]) for row in rows))

    def seconds(self, campaign: str) -> dict[str, float]:
        return _rules.sum_seconds(self._select("evaluations", {"campaign": campaign}))

    def placements(self, campaign: str) -> list[PlacementRow]:
        return [_records.placement_from_row(row) for row in self._select("placements", {"campaign": campaign})]

    # Candidates

    def candidate(self, prefix: str) -> Candidate:
        text = _names.checked_prefix(prefix)
        with self._lock:
            ids = sorted(row["id"] for row in self._rows["candidates"] if row["id"].startswith(text))
            return self._candidate(_names.only_match(text, ids))

    def candidates(self, campaign: str) -> list[Candidate]:
        with self._lock:
            return [self._candidate(found) for found in dict.fromkeys(p.candidate for p in self.proposals(campaign))]

    def proposals(self, campaign: str) -> list[ProposalRow]:
        rows = self._select("proposals", {"campaign": campaign})
        return [_records.proposal_from_row(row) for row in sorted(rows, key=lambda row: int(row["ticket"]))]

    def last_ticket(self, campaign: str) -> int | None:
        with self._lock:
            rows = self._select("proposals", {"campaign": campaign})
            for table in ("evaluations", "tickets"):
                rows += self._select(table, {"campaign": campaign})
        return max((row["ticket"] for row in rows if row["ticket"] is not None), default=None)

    def lineage(self, candidate: str) -> list[Edge]:
        with self._lock:
            edges = [Edge(**row) for row in self._rows["parent_edges"]]
        return _rules.breadth_first(candidate, edges)

    # Tasks, targets, meta-prompts

    def tasks(self) -> list[Task]:
        return [_rules.task_from_text(row["body"]) for row in self._select("tasks", {})]

    def targets(self) -> list[Target]:
        return [_rules.target_from_text(row["body"]) for row in self._select("targets", {})]

    def add_meta_prompt(self, campaign: str, meta_prompt: MetaPrompt, *, displaced: Sequence[str] = ()) -> None:
        row = _records.meta_prompt_to_row(campaign, meta_prompt, displaced)
        with self._lock:
            self._campaign_row(campaign)
            key = {"campaign": campaign, "name": meta_prompt.name, "version": meta_prompt.version}
            for stored in self._select("meta_prompts", key):
                _rules.refuse_other_meta_prompt(stored, meta_prompt)
                return
            self._rows["meta_prompts"].append(row)

    def meta_prompts(self, campaign: str) -> list[MetaPromptRow]:
        return [_records.meta_prompt_from_row(row) for row in self._select("meta_prompts", {"campaign": campaign})]

    # The store itself

    def check(self) -> list[str]:
        with self._lock:
            return find_problems(lambda table: self._rows[table])

    def close(self) -> None:
        """Keeps everything: the same object can be used again."""

    def _names(self) -> list[str]:
        return [row["name"] for row in self._rows["campaigns"]]

    def _select(self, table: str, wanted: Mapping[str, Any]) -> list[Row]:
        with self._lock:
            return [row for row in self._rows[table] if all(row[key] == value for key, value in wanted.items())]

    def _has(self, table: str, key: str) -> bool:
        return any(row["id"] == key for row in self._rows[table])

    def _add_once(self, table: str, row: Row) -> None:
        if not self._has(table, row["id"]):
            self._rows[table].append(row)

    def _number(self) -> int:
        self._next_id += 1
        return self._next_id

    def _campaign_row(self, name: str) -> Row:
        for row in self._rows["campaigns"]:
            if row["name"] == name:
                return row
        raise _names.no_campaign(name, self._names())

    def _campaign(self, row: Row) -> CampaignRow:
        (task,) = self._select("tasks", {"id": row["task"]})
        (target,) = self._select("targets", {"id": row["target"]})
        return _records.campaign_from_row(row, task["body"], target["body"])

    def _refuse_if_locked(self, row: Row) -> None:
        holder = None if row["lock_owner"] is None else Owner.from_text(row["lock_owner"])
        if holder is not None and holder.alive:
            raise CampaignLockedError(_names.locked_message(row["name"], holder))

    def _candidate(self, found: str) -> Candidate:
        (row,) = self._select("candidates", {"id": found})
        edges = sorted(self._select("parent_edges", {"child": found}), key=lambda edge: int(edge["position"]))
        return _records.candidate_from_row(row, [edge["parent"] for edge in edges])

    def _propose(
        self, campaign: str, ticket: int | None, candidate: Candidate, emitter: str, target_cell: Cell | None
    ) -> None:
        if ticket is None:
            raise StoreError(_rules.no_ticket(candidate))
        if not self._has("candidates", candidate.id):
            for parent in candidate.parents:
                if not self._has("candidates", parent):
                    raise StoreError(_rules.not_stored("parent", parent))
            self._rows["candidates"].append(_records.candidate_to_row(candidate))
            self._rows["parent_edges"] += _rules.edge_rows(candidate)
        known = self._select("proposals", {"campaign": campaign, "ticket": ticket})
        if known:
            _rules.refuse_other_proposal(known[0], candidate)
            return
        self._rows["proposals"].append(_records.proposal_to_row(campaign, ticket, candidate, emitter, target_cell))

    def _evaluate(self, campaign: str, ticket: int | None, evaluation: Evaluation) -> int:
        for table, key in (
            ("candidates", evaluation.candidate),
            ("tasks", evaluation.task),
            ("targets", evaluation.target),
        ):
            if not self._has(table, key):
                raise StoreError(_rules.not_stored(table[:-1], key))
        row = {"id": self._number(), **_records.evaluation_to_row(campaign, ticket, evaluation)}
        self._rows["evaluations"].append(row)
        return int(row["id"])

    def _place(self, campaign: str, ticket: int | None, placement: Placement) -> None:
        wanted = _rules.ground_conditions(campaign, placement)
        grounds = self._select("evaluations", wanted)
        if not grounds:
            raise StoreError(_rules.no_ground(placement))
        row = _records.placement_to_row(campaign, ticket, placement, grounds[-1]["id"])
        self._rows["placements"].append({"id": self._number(), **row})

    def _drop_orphans(self) -> None:
        rows = self._rows
        used = {row["candidate"] for table in ("proposals", "evaluations", "placements") for row in rows[table]}
        used |= _call_records.named_candidates(rows["tickets"])
        known = {row["id"] for row in rows["candidates"]}
        gone = _rules.orphans(known, used, [Edge(**row) for row in rows["parent_edges"]])
        rows["candidates"] = [row for row in rows["candidates"] if row["id"] not in gone]
        rows["parent_edges"] = [edge for edge in rows["parent_edges"] if edge["child"] not in gone]
        for table, column in (("tasks", "task"), ("targets", "target")):
            kept = {row[column] for source in ("campaigns", "evaluations") for row in rows[source]}
            rows[table] = [row for row in rows[table] if row["id"] in kept]
