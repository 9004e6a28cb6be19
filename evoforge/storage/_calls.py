"""The part of the store's contract about models: their calls, and tickets handed out to agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from evoforge.core import Call, Cell

__all__ = ["SETTLED", "TICKET_STATES", "CallRow", "CallStore", "TicketRow"]

SETTLED = ("answered", "expired")
TICKET_STATES = ("open", *SETTLED, "asked")


@dataclass(frozen=True)
class CallRow:
    """A stored call; `id` grows in stored order."""

    id: int
    campaign: str
    call: Call
    created: str


@dataclass(frozen=True)
class TicketRow:
    """What somebody was asked: everything that is needed once the answer comes.

    `parents` and `exemplars` are whole candidate ids; `expires` is UTC, ISO 8601. A model of the campaign's own is
    ``asked``: its call holds the prompt, and it does not expire (both empty here).
    """

    campaign: str
    ticket: int
    emitter: str
    operator: str
    parents: tuple[str, ...]
    meta_prompt: str | None
    target_cell: Cell | None
    exemplars: tuple[str, ...]
    prompt: str
    expires: str
    state: str = "open"

    def __post_init__(self) -> None:
        if self.state not in TICKET_STATES:
            raise ValueError(f"a ticket's state must be one of {', '.join(TICKET_STATES)}, got {self.state!r}")
        if self.ticket < 0:
            raise ValueError(f"a ticket's number must be zero or more, got {self.ticket}")


class CallStore(ABC):
    """Calls of models and tickets."""

    @abstractmethod
    def record_call(self, campaign: str, call: Call) -> int:
        """Stores a call, zero bytes and broken characters in its texts spelled out; returns its row id.

        Raises:
            NotFoundError: no such campaign.
        """

    @abstractmethod
    def replace_call(self, campaign: str, number: int, call: Call | None) -> None:
        """Puts what a call came to in place of what was stored as it was made; None: it never was, its row goes.

        Raises:
            NotFoundError: no such campaign, or `record_call` gave no such id for it.
        """

    @abstractmethod
    def calls(self, campaign: str, *, texts: bool = True) -> list[CallRow]:
        """In stored order. Without `texts` prompts and replies are empty: of a long campaign they are a gigabyte."""

    @abstractmethod
    def find_call(self, prompt_hash: str, campaign: str | None = None) -> list[CallRow]:
        """Every call of exactly this prompt, from any campaign or from one, in stored order (for replay)."""

    @abstractmethod
    def issue_ticket(self, campaign: str, ticket: TicketRow) -> None:
        """Stores a ticket.

        Raises:
            NotFoundError: no such campaign.
            StoreError: its number is taken by a ticket, proposal or evaluation; it is another
                campaign's; a parent or exemplar is not stored.
        """

    @abstractmethod
    def ticket(self, campaign: str, number: int) -> TicketRow:
        """Raises NotFoundError: no such campaign, or it issued no such ticket."""

    @abstractmethod
    def tickets(self, campaign: str) -> list[TicketRow]:
        """In the order of their numbers."""

    @abstractmethod
    def settle_ticket(self, campaign: str, number: int, state: str) -> bool:
        """Moves an open ticket to ``answered`` or ``expired``.

        Returns:
            Whether this call moved it: of several at once one does, and a settled ticket stays.

        Raises:
            NotFoundError: no such campaign, or it issued no such ticket.
            ValueError: another state.
        """
