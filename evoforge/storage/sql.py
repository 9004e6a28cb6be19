"""The store on SQLite or PostgreSQL.

One transaction per call. On SQLite writers begin IMMEDIATE, so that what a transaction read is
still true when it writes; the write-ahead log lets readers go on meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, delete, func, insert, select, text, update
from sqlalchemy.exc import OperationalError

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
from evoforge.storage._server_lock import ServerLock, is_locked
from evoforge.storage._sql_calls import SqlCalls

if TYPE_CHECKING:
    from tenacity import RetryCallState

__all__ = ["SqlStore", "is_write", "writing"]

_log = logging.getLogger(__name__)
_WRITE = "evoforge_write"
_PATIENCE_S = 300.0  # a server is restarted in less, and a search has taken weeks
_LOOK_EVERY_S = 1.0
_T = _statements.TABLES


def is_write(connection: Connection) -> bool:
    """Whether the transaction that begins is one of `writing`."""
    return bool(connection.get_execution_options().get(_WRITE))


@contextmanager
def writing(connection: Connection) -> Iterator[Connection]:
    """A transaction that may write; committed at the end, rolled back by an exception, and the connection closed."""
    with connection.execution_options(**{_WRITE: True}), connection.begin():
        yield connection


class SqlStore(SqlCalls, Store):
    """`Store` over an engine whose schema is current; `evoforge.storage.open_store` makes it.

    A server that went away is waited for before a transaction begins, up to five minutes.
    """

    def __init__(self, engine: Engine, url: str, *, read_only: bool = False) -> None:
        self.url = url
        self.read_only = read_only
        self._engine = engine
        # Locked campaigns: the owner that this store wrote, and the server's lock.
        self._held: dict[str, tuple[str, ServerLock | None]] = {}
        self._away = False  # the server, in spite of all patience

    @contextmanager
    def _reads(self) -> Iterator[Connection]:
        with translated_errors(self.url), self._connect() as connection:
            yield connection

    @contextmanager
    def _writes(self) -> Iterator[Connection]:
        if self.read_only:
            raise StoreError(f"{self.url} is open for reading only; give a --store in a folder that can be written")
        with translated_errors(self.url), writing(self._connect()) as connection:
            yield connection

    def _connect(self) -> Connection:
        """A connection that works. Nothing was asked of it yet, so that waiting for it repeats nothing."""
        if self._engine.dialect.name != "postgresql":
            return self._engine.connect()
        import tenacity

        def told(state: RetryCallState) -> None:
            if state.attempt_number == 1:
                _log.warning("%s cannot be reached; waiting for it, up to %g s", self.url, _PATIENCE_S)

        patiently = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(OperationalError), wait=tenacity.wait_fixed(_LOOK_EVERY_S),
            stop=tenacity.stop_after_delay(0.0 if self._away else _PATIENCE_S), before_sleep=told, reraise=True,
        )  # fmt: skip
        try:
            connection = patiently(self._engine.connect)
        except BaseException:
            self._away = True  # who cleans up after this does not wait as long again
            raise
        self._away = False
        return connection

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
    ) -> None:
        table = _T["campaigns"]
        changes = _rules.campaign_changes(state, stop_reason, wall_s, setup, config)
        with self._writes() as connection:
            self._require_lock(connection, name)
            connection.execute(update(table).where(table.c.name == name), changes)

    def delete_campaign(self, name: str) -> None:
        with self._server_lock(name), self._writes() as connection:
            self._refuse_if_locked(connection, name)
            for table in ("tickets", "llm_calls", "placements", "evaluations", "proposals", "meta_prompts"):
                connection.execute(delete(_T[table]).where(_T[table].c.campaign == name))
            connection.execute(delete(_T["campaigns"]).where(_T["campaigns"].c.name == name))
            _statements.delete_orphans(connection)

    @contextmanager
    def lock_campaign(self, name: str, owner: Owner | None = None) -> Iterator[Owner]:
        owner = owner or Owner.current()
        table, mine = _T["campaigns"], owner.to_text()
        with self._server_lock(name) as lock:
            with self._writes() as connection:
                self._refuse_if_locked(connection, name)
                connection.execute(update(table).where(table.c.name == name), {"lock_owner": mine})
            try:
                self._held[name] = (mine, lock)
                yield owner
            finally:
                if self._held.get(name) == (mine, lock):
                    del self._held[name]
                try:
                    with self._writes() as connection:
                        held = (table.c.name == name) & (table.c.lock_owner == mine)
                        connection.execute(update(table).where(held), {"lock_owner": None})
                except StoreError:  # a full disk: what went wrong inside matters more
                    owner.give_up()

    def is_held(self, name: str) -> bool:
        with self._reads() as connection:
            holder = _statements.require_campaign(connection, name)
            return is_locked(connection, name) if connection.dialect.name == "postgresql" else Owner.lives(holder)

    def _refuse_if_locked(self, connection: Connection, name: str) -> None:
        """Raises NotFoundError or CampaignLockedError."""
        stored = _statements.require_campaign(connection, name)
        holder = None if stored is None else Owner.from_text(stored)
        # On a server its lock has already told: process numbers are of another machine.
        if holder is not None and self._engine.dialect.name == "sqlite" and holder.alive:
            raise CampaignLockedError(_names.locked_message(name, holder))

    def _require_lock(self, connection: Connection, name: str) -> None:
        """Takes a lock of this store again that was lost, as by a server's restart.

        Raises:
            NotFoundError: no such campaign.
            CampaignLockedError: another coordinator has taken it since.
        """
        owner, lock = self._held.get(name, (None, None))
        kept = lock is None or lock.keep()
        holder = _statements.require_campaign(connection, name)
        if owner is not None and not (kept and holder == owner):
            raise CampaignLockedError(
                f"campaign {name} was locked by this process, and the lock was lost (did the database restart?) and "
                f"taken by another; look at it there, or go on later: evoforge resume {name}"
            )

    @contextmanager
    def _server_lock(self, name: str) -> Iterator[ServerLock | None]:
        """The campaign's lock on a server; None: a file has none."""
        if self._engine.dialect.name != "postgresql":
            yield None
            return
        lock = ServerLock(self._connect, name)
        with translated_errors(self.url):
            taken = lock.take()
        if not taken:
            with self._reads() as connection:
                stored = _statements.require_campaign(connection, name)
            raise CampaignLockedError(_names.locked_message(name, Owner.from_text(stored) if stored else None))
        try:
            yield lock
        finally:
            lock.release()

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
            rows = _rules.read_evaluations(_statements.stream(connection, own))
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
                _statements.stream(connection, _statements.where(table, wanted).order_by(table.c.id))
            )

    def counts(self, campaign: str, kind: Kind | None = None) -> dict[Status, int]:
        table = _T["evaluations"]
        query = select(table.c.status, func.count()).group_by(table.c.status)
        for condition in _statements.equal(table, _rules.conditions(campaign=campaign, kind=kind)):
            query = query.where(condition)
        with self._reads() as connection:
            return {Status(status): int(count) for status, count in connection.execute(query)}

    def seconds(self, campaign: str) -> dict[str, float]:
        table = _T["evaluations"]
        with self._reads() as connection:
            query = _statements.where(table, {"campaign": campaign}).order_by(table.c.id)
            return _rules.sum_seconds(_statements.stream(connection, query))

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
            _statements.require_campaign(connection, campaign)
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
                return _statements.stream(connection, query)

            return damage + find_problems(read)

    def close(self) -> None:
        self._engine.dispose()
