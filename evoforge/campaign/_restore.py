"""A search as its store tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from evoforge.campaign._loop import Loop
from evoforge.core import Call, Evaluation, Kind, Outcome
from evoforge.emitters import Proposal
from evoforge.storage import EvaluationRow, Store

__all__ = ["restore"]


def restore(loop: Loop, store: Store, campaign: str) -> tuple[int, list[Evaluation]] | None:
    """Tells a new `loop` everything that is known of its campaign, in the order in which it happened.

    A ticket's outcome is what came of its proposal at once; what its candidate was measured for later (tuning,
    duels, doubts) taught nobody then, and does not now.

    Returns:
        ticket and trials after which nothing more is stored: they may have been cut off before a confirmation.
    """
    candidates = {candidate.id: candidate for candidate in store.candidates(campaign)}
    proposals = {stored.ticket: stored for stored in store.proposals(campaign)}
    calls: dict[int | None, list[Call]] = defaultdict(list)
    for paid in store.calls(campaign):
        calls[paid.call.ticket].append(paid.call)
    ticket: int | None = None
    rows: list[Evaluation] = []
    judged = max((stored.ticket for stored in proposals.values() if stored.model is not None), default=-1)
    for ticket, rows in _stretches(store.evaluations(campaign=campaign)):
        stored = proposals.pop(ticket, None) if ticket is not None else None
        if stored is None:
            loop.recall(rows)
            continue
        cells = {elite.candidate: elite.cell for elite in loop.state.archive}
        candidate = replace(  # the store's own tells of the first campaign that had this text
            candidates[stored.candidate], operator=stored.operator, parents=stored.parents,
            meta_prompt=stored.meta_prompt, model=stored.model,
        )  # fmt: skip
        proposal = Proposal(
            candidate=candidate,
            operator=stored.operator,
            emitter=stored.emitter,
            meta_prompt=stored.meta_prompt,
            parent_cells=tuple(cells[parent] for parent in stored.parents if parent in cells),
            target_cell=stored.target_cell,
            cost_usd=sum(call.usd for call in calls.pop(stored.ticket, [])),
        )
        loop.replay(stored.ticket, proposal, rows)
    last = max((ticket for ticket in (store.last_ticket(campaign), *calls) if ticket is not None), default=-1)
    for asked, unused in calls.items():
        # A readable reply that came after the last judged one was perhaps never looked at: no fault of who wrote it.
        readable = unused[-1].outcome in (Outcome.OK, Outcome.TRUNCATED)
        if asked is not None and not (readable and asked > judged):
            loop.forfeit(asked, unused[-1])
    loop.evolution.caught_up(loop.pool)
    loop.next_ticket = last + 1
    return (ticket, rows) if ticket is not None and rows[-1].kind is Kind.TRIAL else None


def _stretches(rows: Iterable[EvaluationRow]) -> Iterator[tuple[int | None, list[Evaluation]]]:
    """Rows in stored order, parted where the ticket changes or a trial follows a confirmation."""
    ticket: int | None = None
    stretch: list[Evaluation] = []
    for row in rows:
        again = bool(stretch) and row.evaluation.kind is Kind.TRIAL and stretch[-1].kind is not Kind.TRIAL
        if stretch and (row.ticket != ticket or again):
            yield ticket, stretch
            stretch = []
        ticket = row.ticket
        stretch.append(row.evaluation)
    if stretch:
        yield ticket, stretch
