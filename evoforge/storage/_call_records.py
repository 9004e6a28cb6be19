"""Calls and tickets ↔ rows, and the refusals that stores share."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from evoforge.core import Call, Outcome, storable
from evoforge.errors import NotFoundError, StoreError
from evoforge.storage._calls import SETTLED, CallRow, TicketRow
from evoforge.storage._records import Row, dump, now

__all__ = [
    "TEXTS",
    "call_from_row",
    "call_to_row",
    "call_to_values",
    "checked_settling",
    "named_candidates",
    "no_such_call",
    "no_such_ticket",
    "read_calls",
    "refuse_foreign_ticket",
    "ticket_from_row",
    "ticket_taken",
    "ticket_to_row",
]

TEXTS = ("system", "user", "reply")
"""The columns of a call that are long."""

_FIELDS = tuple(field.name for field in fields(Call))


def call_to_row(campaign: str, call: Call) -> Row:
    """The columns, still without `id`."""
    return {"campaign": campaign, **call_to_values(call), "created": now()}


def call_to_values(call: Call) -> Row:
    """The columns that the call itself fills."""
    row = {name: getattr(call, name) for name in _FIELDS}
    texts = {name: storable(value) for name, value in row.items() if isinstance(value, str)}
    return {**row, **texts, "outcome": call.outcome.value}


def call_from_row(row: Mapping[str, Any]) -> CallRow:
    """Raises ValueError where the row breaks the record's rules."""
    call = Call(**{**{name: row[name] for name in _FIELDS}, "outcome": Outcome(row["outcome"])})
    return CallRow(row["id"], row["campaign"], call, row["created"])


def read_calls(rows: Iterable[Mapping[str, Any]]) -> list[CallRow]:
    """Raises StoreError for a row that is damaged."""
    found = []
    for row in rows:
        try:
            found.append(call_from_row(row))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"model call {row['id']} is damaged ({error}); run `evoforge db check`") from error
    return found


def ticket_to_row(ticket: TicketRow) -> Row:
    cell = ticket.target_cell
    return {
        "campaign": ticket.campaign,
        "ticket": ticket.ticket,
        "emitter": ticket.emitter,
        "operator": ticket.operator,
        "parents": dump(list(ticket.parents)),
        "meta_prompt": ticket.meta_prompt,
        "target_cell": None if cell is None else ",".join(str(level) for level in cell),
        "exemplars": dump(list(ticket.exemplars)),
        "prompt": storable(ticket.prompt),
        "expires": ticket.expires,
        "state": ticket.state,
        "created": now(),
    }


def ticket_from_row(row: Mapping[str, Any]) -> TicketRow:
    """Raises ValueError (also for JSON that is cut short) where the row breaks the record's rules."""
    cell = row["target_cell"]
    return TicketRow(
        campaign=row["campaign"],
        ticket=row["ticket"],
        emitter=row["emitter"],
        operator=row["operator"],
        parents=tuple(json.loads(row["parents"])),
        meta_prompt=row["meta_prompt"],
        target_cell=None if cell is None else tuple(int(level) for level in cell.split(",")),
        exemplars=tuple(json.loads(row["exemplars"])),
        prompt=row["prompt"],
        expires=row["expires"],
        state=row["state"],
    )


def named_candidates(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """The candidates that rows of tickets name: their texts stay while the ticket does."""
    return {name for row in rows for column in ("parents", "exemplars") for name in json.loads(row[column])}


def refuse_foreign_ticket(campaign: str, ticket: TicketRow) -> None:
    if ticket.campaign != campaign:
        raise StoreError(f"expected a ticket of campaign {campaign!r}, got one of {ticket.campaign!r}")


def ticket_taken(ticket: TicketRow) -> str:
    return (
        f"ticket {ticket.ticket} of campaign {ticket.campaign!r} is taken; "
        "issue the one after the store's last_ticket()"
    )


def no_such_call(campaign: str, number: int) -> NotFoundError:
    return NotFoundError(f"campaign {campaign!r} has no model call {number}; record_call gives the numbers")


def no_such_ticket(campaign: str, number: int) -> NotFoundError:
    return NotFoundError(
        f"campaign {campaign!r} issued no ticket {number}; `evoforge ask {shlex.quote(campaign)}` issues one"
    )


def checked_settling(state: str) -> str:
    if state not in SETTLED:
        raise ValueError(f"expected a ticket to become {' or '.join(SETTLED)}, got {state!r}")
    return state
