"""Calls and tickets in an SQL store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from contextlib import AbstractContextManager

from sqlalchemy import Connection, delete, insert, literal, select, update

from evoforge.core import Call
from evoforge.errors import StoreError
from evoforge.storage import _call_records, _rules, _statements
from evoforge.storage._calls import CallRow, CallStore, TicketRow

__all__ = ["SqlCalls"]

_T = _statements.TABLES


class SqlCalls(CallStore):
    """What `SqlStore` adds of `CallStore`, over its transactions."""

    def record_call(self, campaign: str, call: Call) -> int:
        with self._writes() as connection:
            _statements.require_campaign(connection, campaign)
            row = _call_records.call_to_row(campaign, call)
            key = connection.execute(insert(_T["llm_calls"]), row).inserted_primary_key
            assert key is not None
            return int(key[0])

    def replace_call(self, campaign: str, number: int, call: Call | None) -> None:
        table = _T["llm_calls"]
        held = (table.c.id == number) & (table.c.campaign == campaign)
        with self._writes() as connection:
            _statements.require_campaign(connection, campaign)
            change = delete(table) if call is None else update(table).values(_call_records.call_to_values(call))
            if connection.execute(change.where(held)).rowcount != 1:
                raise _call_records.no_such_call(campaign, number)

    def calls(self, campaign: str, *, texts: bool = True) -> list[CallRow]:
        return self._calls(() if texts else _call_records.TEXTS, campaign=campaign)

    def find_call(self, prompt_hash: str, campaign: str | None = None) -> list[CallRow]:
        return self._calls(prompt_hash=prompt_hash, campaign=campaign)

    def _calls(self, left_out: Collection[str] = (), **wanted: str | None) -> list[CallRow]:
        table = _T["llm_calls"]
        columns = [literal("").label(one.name) if one.name in left_out else one for one in table.c]
        query = select(*columns).where(*_statements.equal(table, _rules.conditions(**wanted))).order_by(table.c.id)
        with self._reads() as connection:
            return _call_records.read_calls(_statements.stream(connection, query))

    def issue_ticket(self, campaign: str, ticket: TicketRow) -> None:
        _call_records.refuse_foreign_ticket(campaign, ticket)
        with self._writes() as connection:
            _statements.require_campaign(connection, campaign)
            for name in ("tickets", "proposals", "evaluations"):
                table = _T[name]
                query = select(table.c.ticket).where(table.c.campaign == campaign, table.c.ticket == ticket.ticket)
                if connection.execute(query.limit(1)).first() is not None:
                    raise StoreError(_call_records.ticket_taken(ticket))
            _statements.require(connection, "candidates", ticket.parents, "parent")
            _statements.require(connection, "candidates", ticket.exemplars, "exemplar")
            # Not a plain insert: on a server another process may have issued it since we looked.
            if not _statements.insert_once(connection, _T["tickets"], _call_records.ticket_to_row(ticket)):
                raise StoreError(_call_records.ticket_taken(ticket))

    def ticket(self, campaign: str, number: int) -> TicketRow:
        with self._reads() as connection:
            return self._ticket(connection, campaign, number)

    def tickets(self, campaign: str) -> list[TicketRow]:
        table = _T["tickets"]
        query = _statements.where(table, {"campaign": campaign}).order_by(table.c.ticket)
        with self._reads() as connection:
            return [_call_records.ticket_from_row(row) for row in _statements.fetch(connection, query)]

    def settle_ticket(self, campaign: str, number: int, state: str) -> bool:
        state = _call_records.checked_settling(state)
        table = _T["tickets"]
        with self._writes() as connection:
            self._ticket(connection, campaign, number)
            held = (table.c.campaign == campaign) & (table.c.ticket == number) & (table.c.state == "open")
            return connection.execute(update(table).where(held), {"state": state}).rowcount == 1

    @staticmethod
    def _ticket(connection: Connection, campaign: str, number: int) -> TicketRow:
        _statements.require_campaign(connection, campaign)
        key = {"campaign": campaign, "ticket": number}
        # The number may come from outside; one too great for its column was never issued.
        known = 0 <= number < 2**31
        rows = _statements.fetch(connection, _statements.where(_T["tickets"], key)) if known else []
        if not rows:
            raise _call_records.no_such_ticket(campaign, number)
        return _call_records.ticket_from_row(rows[0])

    # Of the store

    @abstractmethod
    def _reads(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writes(self) -> AbstractContextManager[Connection]: ...
