"""Calls and tickets in the in-memory store."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from evoforge.core import Call
from evoforge.errors import StoreError
from evoforge.storage import _call_records, _rules
from evoforge.storage._calls import CallRow, CallStore, TicketRow
from evoforge.storage._records import Row

__all__ = ["MemoryCalls"]


class MemoryCalls(CallStore):
    """What `MemoryStore` adds of `CallStore`, over its rows."""

    _rows: dict[str, list[Row]]
    _lock: threading.RLock

    def record_call(self, campaign: str, call: Call) -> int:
        with self._lock:
            self._campaign_row(campaign)
            row = {"id": self._number(), **_call_records.call_to_row(campaign, call)}
            self._rows["llm_calls"].append(row)
            return int(row["id"])

    def replace_call(self, campaign: str, number: int, call: Call | None) -> None:
        with self._lock:
            self._campaign_row(campaign)
            rows = self._select("llm_calls", {"campaign": campaign, "id": number})
            if not rows:
                raise _call_records.no_such_call(campaign, number)
            if call is None:
                self._rows["llm_calls"].remove(rows[0])
            else:
                rows[0].update(_call_records.call_to_values(call))

    def calls(self, campaign: str, *, texts: bool = True) -> list[CallRow]:
        left_out = {} if texts else dict.fromkeys(_call_records.TEXTS, "")
        return _call_records.read_calls(
            {**row, **left_out} for row in self._select("llm_calls", {"campaign": campaign})
        )

    def find_call(self, prompt_hash: str, campaign: str | None = None) -> list[CallRow]:
        wanted = _rules.conditions(prompt_hash=prompt_hash, campaign=campaign)
        return _call_records.read_calls(self._select("llm_calls", wanted))

    def issue_ticket(self, campaign: str, ticket: TicketRow) -> None:
        _call_records.refuse_foreign_ticket(campaign, ticket)
        with self._lock:
            self._campaign_row(campaign)
            key = {"campaign": campaign, "ticket": ticket.ticket}
            if any(self._select(table, key) for table in ("tickets", "proposals", "evaluations")):
                raise StoreError(_call_records.ticket_taken(ticket))
            for what, ids in (("parent", ticket.parents), ("exemplar", ticket.exemplars)):
                for name in ids:
                    if not self._has("candidates", name):
                        raise StoreError(_rules.not_stored(what, name))
            self._rows["tickets"].append(_call_records.ticket_to_row(ticket))

    def ticket(self, campaign: str, number: int) -> TicketRow:
        with self._lock:
            return _call_records.ticket_from_row(self._ticket(campaign, number))

    def tickets(self, campaign: str) -> list[TicketRow]:
        rows = sorted(self._select("tickets", {"campaign": campaign}), key=lambda row: int(row["ticket"]))
        return [_call_records.ticket_from_row(row) for row in rows]

    def settle_ticket(self, campaign: str, number: int, state: str) -> bool:
        state = _call_records.checked_settling(state)
        with self._lock:
            row = self._ticket(campaign, number)
            open_ = bool(row["state"] == "open")
            if open_:
                row["state"] = state
            return open_

    def _ticket(self, campaign: str, number: int) -> Row:
        self._campaign_row(campaign)
        rows = self._select("tickets", {"campaign": campaign, "ticket": number})
        if not rows:
            raise _call_records.no_such_ticket(campaign, number)
        return rows[0]

    # Of the store

    @abstractmethod
    def _campaign_row(self, name: str) -> Row: ...

    @abstractmethod
    def _number(self) -> int: ...

    @abstractmethod
    def _has(self, table: str, key: str) -> bool: ...

    @abstractmethod
    def _select(self, table: str, wanted: Mapping[str, Any]) -> list[Row]: ...
