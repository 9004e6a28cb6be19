"""A search as its store tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from evoforge.campaign._asked import answered_by, proposed_for, read_reply
from evoforge.campaign._desk import Answered
from evoforge.campaign._loop import Loop
from evoforge.core import Call, Candidate, Evaluation, Kind, Outcome
from evoforge.emitters import Proposal
from evoforge.errors import ReplyError, UsageError
from evoforge.storage import EvaluationRow, Store, TicketRow

__all__ = ["Left", "restore"]


@dataclass(frozen=True)
class Left:
    """What the process before left undone.

    `unconfirmed` is a ticket with trials after which nothing more is stored: they may have been cut off before a
    confirmation. `answers` are kernels of models that were paid and never judged.
    """

    unconfirmed: tuple[int, list[Evaluation]] | None
    answers: list[Answered]


def restore(loop: Loop, store: Store, campaign: str) -> Left:
    """Tells a new `loop` everything that is known of its campaign, in the order in which it happened.

    A ticket's outcome is what came of its proposal at once; what its candidate was measured for later (tuning,
    duels, doubts) taught nobody then, and does not now.
    """
    candidates = {candidate.id: candidate for candidate in store.candidates(campaign)}
    proposals = {stored.ticket: stored for stored in store.proposals(campaign)}
    calls: dict[int | None, list[Call]] = defaultdict(list)
    for paid in store.calls(campaign):
        calls[paid.call.ticket].append(paid.call)
    ticket: int | None = None
    rows: list[Evaluation] = []
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
    tickets, language = {row.ticket: row for row in store.tickets(campaign)}, store.campaign(campaign).language
    for question in tickets.values():
        if question.state in ("asked", "answered"):
            loop.state.ask(question.operator, question.parents)
    answers: list[Answered] = []
    for asked, unused in calls.items():
        if asked is None:
            continue
        found = _unjudged(loop, language, tickets.get(asked), unused, candidates)
        if found is None:
            loop.forfeit(asked, unused[-1])
        else:
            answers.append(found)
    loop.evolution.caught_up(loop.pool, store.meta_prompts(campaign))
    loop.next_ticket = last + 1
    return Left((ticket, rows) if ticket is not None and rows[-1].kind is Kind.TRIAL else None, answers)


def _unjudged(
    loop: Loop, language: str, ticket: TicketRow | None, calls: Sequence[Call], candidates: Mapping[str, Candidate]
) -> Answered | None:
    """The kernel of a reply that led to no proposal; None where it held none, or one that is known."""
    last = calls[-1]
    if ticket is None or last.outcome not in (Outcome.OK, Outcome.TRUNCATED):
        return None
    parents = [candidates[parent] for parent in ticket.parents]
    try:
        answer = read_reply(last.reply, language, parents, last.outcome)
        candidate = answered_by(ticket, answer, last.model, language, parents)
        _ = candidate.space
    except (ReplyError, UsageError):
        return None
    if loop.state.gate.twin(candidate):
        return None
    usd = sum(call.usd for call in calls)
    proposal = proposed_for(ticket, candidate, loop.state.archive, usd)
    return Answered(ticket.ticket, ticket.emitter, ticket.meta_prompt or "", last.model, proposal, "", usd)


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
