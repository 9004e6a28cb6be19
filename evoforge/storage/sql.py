"""The store on SQLite or PostgreSQL.

One transaction per call. On SQLite writers begin IMMEDIATE, so that what a transaction read is
still true when it writes; the write-ahead log lets readers go on meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from evoforge.core import Candidate, Cell, Evaluation, Kind, MetaPrompt, Params, Status, Target, Task
from evoforge.errors import CampaignLockedError, StoreError
from evoforge.storage import _names, _records, _rules, _statements
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
from evoforge.storage._check import find_problems
from evoforge.storage._errors import translated_errors
from evoforge.storage._owner import Owner
from evoforge.storage._sql_calls import SqlCalls

__all__ = ["SqlStore", "is_write", "writing"]

_WRITE = "evoforge_write"
_T = _statements.TABLES


def is_write(connection: Connection) -> bool:
    """Whether the transaction that begins is one of `writing`."""
    return bool(connection.get_execution_options().get(_WRITE))


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write; committed at the end, rolled back by an exception."""
    with engine.connect().execution_options(**{_WRITE: True}) as connection, connection.begin():
        yield connection


def _lock_key(campaign: str) -> int:
    """The key of its advisory lock."""
    return int.from_bytes(hashlib.sha256(f"evoforge campaign {campaign}".encode()).digest()[:8], "big", signed=True)


class SqlStore(SqlCalls, Store):
    """`Store` over an engine whose schema is current; `evoforge.storage.open_store` makes it."""

    def __init__(self, engine: Engine, url: str, *, read_only: bool = False) -> None:
        self.url = url
        self.read_only = read_only
        self._engine = engine
        self._held: dict[str, str] = {}  # locked campaigns and the owner that this store wrote for each

    @contextmanager
    def _reads(self) -> Iterator[Connection]:
        with translated_errors(self.url), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writes(self) -> Iterator[Connection]:
        if self.read_only:
            raise StoreError(f"{self.url} is open for reading only; give a --store in a folder that can be written")
        with translated_errors(self.url), writing(self._engine) as connection:
            yield connection

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
        with self._writes() as connection:
            if connection.dialect.name == "postgresql":  # one at a time, so that no two choose the same name
                connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('evoforge campaigns'))"))
            name = _names.new_name(name, task.name, _statements.campaign_names(connection))
            given = CampaignSetup(name, task, target, language, seed, config, descriptor, reachable, setup or {})
            _statements.insert_once(connection, _T["tasks"], _records.task_to_row(task))
            _statements.insert_once(connection, _T["targets"], _records.target_to_row(target))
            connection.execute(insert(_T["campaigns"]), _records.campaign_to_row(given))
            return _statements.campaign(connection, name)

    def campaign(self, name: str) -> CampaignRow:
        with self._reads() as connection:
            return _statements.campaign(connection, name)

    def campaigns(self) -> list[CampaignRow]:
        with self._reads() as connection:
            rows = _statements.fetch(connection, _statements.campaign_query().order_by(_T["campaigns"].c.id))
            return [_records.campaign_from_row(row, row["task_body"], row["target_body"]) for row in rows]

    def update_campaign(
        self,
        name: str,
        *,
        state: str | None = None,
        stop_reason: str | None = None,
        wall_s: float | None = None,
        setup: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> CampaignRow:
        table = _T["campaigns"]
        changes = _rules.campaign_changes(state, stop_reason, wall_s, setup, config)
        with self._writes() as connection:
            self._require_lock(connection, name)
            connection.execute(update(table).where(table.c.name == name), changes)
            return _statements.campaign(connection, name)

    def delete_campaign(self, name: str) -> None:
        with self._advisory_lock(name), self._writes() as connection:
            self._refuse_if_locked(connection, name)
            for table in ("tickets", "llm_calls", "placements", "evaluations", "proposals", "meta_prompts"):
                connection.execute(delete(_T[table]).where(_T[table].c.campaign == name))
            connection.execute(delete(_T["campaigns"]).where(_T["campaigns"].c.name == name))
            _statements.delete_orphans(connection)

    @contextmanager
    def lock_campaign(self, name: str, owner: Owner | None = None) -> Iterator[Owner]:
        owner = owner or Owner.current()
        table, mine = _T["campaigns"], owner.to_text()
        with self._advisory_lock(name):
            with self._writes() as connection:
                self._refuse_if_locked(connection, name)
                connection.execute(update(table).where(table.c.name == name), {"lock_owner": mine})
            try:
                self._held[name] = mine
                yield owner
            finally:
                if self._held.get(name) == mine:
                    del self._held[name]
                try:
                    with self._writes() as connection:
                        held = (table.c.name == name) & (table.c.lock_owner == mine)
                        connection.execute(update(table).where(held), {"lock_owner": None})
                except StoreError:  # a full disk: what went wrong inside matters more
                    owner.give_up()

    def is_held(self, name: str) -> bool:
        with self._reads() as connection:
            holder = _statements.campaign_row(connection, name)["lock_owner"]
            if self._engine.dialect.name != "postgresql":
                return Owner.lives(holder)
            # A bigint key stands in pg_locks as two halves.
            found = connection.execute(
                text(
                    "SELECT 1 FROM pg_locks JOIN pg_database ON pg_locks.database = pg_database.oid "
                    "WHERE datname = current_database() AND locktype = 'advisory' AND granted AND objsubid = 1 "
                    "AND (classid::bigint << 32) | objid::bigint = :key"
                ),
                {"key": _lock_key(name)},
            )
            return found.first() is not None

    def _refuse_if_locked(self, connection: Connection, name: str) -> None:
        """Raises NotFoundError or CampaignLockedError."""
        row = _statements.campaign_row(connection, name)
        holder = None if row["lock_owner"] is None else Owner.from_text(row["lock_owner"])
        # On a server the advisory lock has already told: process numbers are of another machine.
        if holder is not None and self._engine.dialect.name == "sqlite" and holder.alive:
            raise CampaignLockedError(_names.locked_message(name, holder))

    def _require_lock(self, connection: Connection, name: str) -> None:
        """Raises CampaignLockedError where a lock of this store was lost, as by a server's restart, and taken since."""
        holder = _statements.campaign_row(connection, name)["lock_owner"]
        if name in self._held and holder != self._held[name]:
            raise CampaignLockedError(
                f"campaign {name} was locked by this process, and the lock was lost (did the database restart?) and "
                f"taken by another; look at it there, or go on later: evoforge resume {name}"
            )

    @contextmanager
    def _advisory_lock(self, name: str) -> Iterator[None]:
        """On PostgreSQL a lock that the server drops when this process or its machine dies."""
        if self._engine.dialect.name != "postgresql":
            yield
            return
        key = _lock_key(name)
        with translated_errors(self.url):
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            with translated_errors(self.url):
                got = connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar()
            if not got:
                row = _statements.campaign_row(connection, name)
                holder = Owner.from_text(row["lock_owner"]) if row["lock_owner"] else None
                raise CampaignLockedError(_names.locked_message(name, holder))
            try:
                yield
            finally:
                # A server notices late that a session has ended; said so, the lock is free at once.
                with suppress(SQLAlchemyError):
                    connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})
        finally:
            connection.invalidate()  # the session, and a lock that it may still hold, must not go back to the pool
            connection.close()

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
        with self._writes() as connection:
            self._require_lock(connection, campaign)
            if candidate is not None:
                _statements.propose(connection, campaign, ticket, candidate, emitter, target_cell)
            ids = [_statements.evaluate(connection, campaign, ticket, evaluation) for evaluation in evaluations]
            for placement in placements:
                _statements.place(connection, campaign, ticket, placement)
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
        return self._evaluations(
            _rules.conditions(
                campaign=campaign, candidate=candidate, kind=kind, status=status, task=task, target=target
            )
        )

    def claims(self, campaign: str) -> tuple[list[EvaluationRow], list[Candidate]]:
        table, candidates = _T["evaluations"], _T["candidates"]
        confirms = _rules.conditions(campaign=campaign, kind=Kind.CONFIRM)
        names = select(table.c.candidate).where(*_statements.equal(table, confirms))
        own = _statements.where(table, {"campaign": campaign}).where(table.c.candidate.in_(names)).order_by(table.c.id)
        with self._reads() as connection:
            rows = _rules.read_evaluations(_statements.fetch(connection, own))
            found = _statements.fetch(connection, select(candidates).where(candidates.c.id.in_(names)))
            return rows, _statements.with_parents(connection, found, names)

    def last_trials(self, campaign: str) -> list[EvaluationRow]:
        table = _T["evaluations"]
        trials = _statements.equal(table, _rules.conditions(campaign=campaign, kind=Kind.TRIAL))
        latest = select(func.max(table.c.id)).where(*trials).group_by(table.c.status)
        with self._reads() as connection:
            rows = _statements.fetch(connection, select(table).where(table.c.id.in_(latest)).order_by(table.c.id))
            return _rules.read_evaluations(rows)

    def find_recorded(
        self, candidate: str, params: Params, task: str, target: str, protocol: int, kind: Kind
    ) -> list[EvaluationRow]:
        return self._evaluations(
            _rules.conditions(
                candidate=candidate,
                params_hash=_records.params_hash(params),
                task=task,
                target=target,
                protocol=protocol,
                kind=kind,
            )
        )

    def _evaluations(self, wanted: Mapping[str, Any]) -> list[EvaluationRow]:
        table = _T["evaluations"]
        with self._reads() as connection:
            return _rules.read_evaluations(
                _statements.fetch(connection, _statements.where(table, wanted).order_by(table.c.id))
            )

    def counts(self, campaign: str, kind: Kind | None = None) -> dict[Status, int]:
        table = _T["evaluations"]
        query = select(table.c.status, func.count()).group_by(table.c.status)
        for condition in _statements.equal(table, _rules.conditions(campaign=campaign, kind=kind)):
            query = query.where(condition)
        with self._reads() as connection:
            return {Status(status): int(count) for status, count in connection.execute(query)}

    def placements(self, campaign: str) -> list[PlacementRow]:
        table = _T["placements"]
        with self._reads() as connection:
            rows = _statements.fetch(connection, _statements.where(table, {"campaign": campaign}).order_by(table.c.id))
            return [_records.placement_from_row(row) for row in rows]

    # Candidates

    def candidate(self, prefix: str) -> Candidate:
        start = _names.checked_prefix(prefix)
        table = _T["candidates"]
        # A range and not LIKE, which could not use the index; "g" sorts after every digit.
        query = select(table).where(table.c.id >= start, table.c.id < start + "g").order_by(table.c.id).limit(4)
        with self._reads() as connection:
            rows = _statements.fetch(connection, query)
            found = _names.only_match(start, [row["id"] for row in rows])
            return _statements.with_parents(connection, rows[:1], select(table.c.id).where(table.c.id == found))[0]

    def candidates(self, campaign: str) -> list[Candidate]:
        table, proposals = _T["candidates"], _T["proposals"]
        own = select(proposals.c.candidate).where(proposals.c.campaign == campaign)
        first = (
            select(proposals.c.candidate, func.min(proposals.c.ticket).label("first"))
            .where(proposals.c.campaign == campaign)
            .group_by(proposals.c.candidate)
            .subquery()
        )
        query = select(table).join(first, first.c.candidate == table.c.id).order_by(first.c.first)
        with self._reads() as connection:
            return _statements.with_parents(connection, _statements.fetch(connection, query), own)

    def proposals(self, campaign: str) -> list[ProposalRow]:
        table = _T["proposals"]
        with self._reads() as connection:
            rows = _statements.fetch(
                connection, _statements.where(table, {"campaign": campaign}).order_by(table.c.ticket)
            )
            return [_records.proposal_from_row(row) for row in rows]

    def last_ticket(self, campaign: str) -> int | None:
        with self._reads() as connection:
            found = [
                connection.execute(select(func.max(table.c.ticket)).where(table.c.campaign == campaign)).scalar()
                for table in (_T["proposals"], _T["evaluations"], _T["tickets"])
            ]
        return max((ticket for ticket in found if ticket is not None), default=None)

    def lineage(self, candidate: str) -> list[Edge]:
        table = _T["parent_edges"]
        line = select(table).where(table.c.child == candidate).cte("line", recursive=True)
        line = line.union(select(table).join(line, table.c.child == line.c.parent))
        with self._reads() as connection:
            edges = [Edge(**row) for row in _statements.fetch(connection, select(line))]
        return _rules.breadth_first(candidate, edges)

    # Tasks, targets, meta-prompts

    def tasks(self) -> list[Task]:
        with self._reads() as connection:
            return [
                _rules.task_from_text(row["body"])
                for row in _statements.fetch(connection, _statements.by_age(_T["tasks"]))
            ]

    def targets(self) -> list[Target]:
        with self._reads() as connection:
            return [
                _rules.target_from_text(row["body"])
                for row in _statements.fetch(connection, _statements.by_age(_T["targets"]))
            ]

    def add_meta_prompt(self, campaign: str, meta_prompt: MetaPrompt, *, displaced: Sequence[str] = ()) -> None:
        table = _T["meta_prompts"]
        key = {"campaign": campaign, "name": meta_prompt.name, "version": meta_prompt.version}
        with self._writes() as connection:
            _statements.campaign_row(connection, campaign)
            for stored in _statements.fetch(connection, _statements.where(table, key)):
                _rules.refuse_other_meta_prompt(stored, meta_prompt)
                return
            connection.execute(insert(table), _records.meta_prompt_to_row(campaign, meta_prompt, displaced))

    def meta_prompts(self, campaign: str) -> list[MetaPromptRow]:
        table = _T["meta_prompts"]
        with self._reads() as connection:
            rows = _statements.fetch(connection, _statements.where(table, {"campaign": campaign}).order_by(table.c.id))
            return [_records.meta_prompt_from_row(row) for row in rows]

    # The store itself

    def check(self) -> list[str]:
        with self._reads() as connection:
            # All tables as they stood at one moment: what a campaign commits meanwhile is no broken reference.
            if self._engine.dialect.name == "postgresql":  # a transaction of SQLite is such a moment
                connection.execution_options(isolation_level="REPEATABLE READ")
            damage: list[str] = []
            if self._engine.dialect.name == "sqlite":
                answers = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
                damage = [f"the file is damaged: {answer}" for answer in answers if answer != "ok"]

            def read(name: str) -> Iterable[Mapping[str, Any]]:
                table = _T[name]
                query = select(table).order_by(*table.primary_key.columns)
                rows = connection.execution_options(yield_per=_statements.CHUNK).execute(query).mappings()
                return (dict(row) for row in rows)

            return damage + find_problems(read)

    def close(self) -> None:
        self._engine.dispose()
