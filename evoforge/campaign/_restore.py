"""A search as its store tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from evoforge.campaign._asked import answered_by, proposed_for, read_reply, whole
from evoforge.campaign._desk import Answered
from evoforge.campaign._loop import Loop
from evoforge.core import Candidate, Evaluation, Kind, Outcome, Status, point
from evoforge.emitters import Proposal
from evoforge.errors import ReplyError, UsageError
from evoforge.storage import CallRow, EvaluationRow, Store, TicketRow

__all__ = ["Left", "restore"]


@dataclass(frozen=True)
class Left:
    """What the process before left undone.

    `unconfirmed` are tickets with trials that may have been cut off before a confirmation. `answers` are kernels of
    models that were paid and never judged.
    """

    unconfirmed: list[tuple[int, list[Evaluation]]]
    answers: list[Answered]


def restore(loop: Loop, store: Store, campaign: str) -> Left:
    """Tells a new `loop` everything that is known of its campaign, in the order in which it happened.

    A ticket's outcome is what came of its proposal at once; what its candidate was measured for later (tuning,
    duels, doubts) taught nobody then, and does not now.
    """
    # First what refers to others: beside a search that goes on, what is read later holds all that it names.
    evaluations = store.evaluations(campaign=campaign)
    tickets = {row.ticket: row for row in store.tickets(campaign)}
    calls: dict[int | None, list[CallRow]] = defaultdict(list)
    for paid in store.calls(campaign, texts=False):
        calls[paid.call.ticket].append(paid)
    proposals = {stored.ticket: stored for stored in store.proposals(campaign)}
    candidates = {candidate.id: candidate for candidate in store.candidates(campaign)}
    tried: dict[int | None, tuple[int, list[Evaluation]]] = {}
    for ticket, rows in _stretches(evaluations):
        stored = proposals.pop(ticket, None) if ticket is not None else None
        if ticket is not None and rows[0].kind is Kind.TRIAL:
            # An agent's answer is judged by a process of its own, and the ticket is open until that is done.
            asked = tickets.get(ticket)
            if stored is None or asked is None or asked.state == "asked":
                tried[None] = ticket, rows
            elif asked.state == "open":
                tried[ticket] = ticket, rows
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
            cost_usd=sum(paid.call.usd for paid in calls.pop(stored.ticket, [])),
        )
        loop.replay(stored.ticket, proposal, rows)
    last = max((ticket for ticket in (store.last_ticket(campaign), *calls) if ticket is not None), default=-1)
    language = store.campaign(campaign).language
    for question in tickets.values():
        if question.state in ("asked", "answered"):
            loop.state.ask(question.operator, question.parents)
    answers: list[Answered] = []
    for number, unused in calls.items():
        if number is None:
            continue
        found = _unjudged(loop, store, language, tickets.get(number), unused, candidates)
        if found is None:
            loop.forfeit(number, unused[-1].call)
        else:
            answers.append(found)
    loop.evolution.caught_up(loop.pool, store.meta_prompts(campaign))
    loop.next_ticket = last + 1
    cut_off = ((ticket, _unconfirmed(loop, rows)) for ticket, rows in tried.values())
    return Left([(ticket, rows) for ticket, rows in cut_off if rows], answers)


def _unconfirmed(loop: Loop, rows: Sequence[Evaluation]) -> list[Evaluation]:
    """The right trials among `rows`, but for those of cells for which one of them was confirmed."""
    right = [row for row in rows if row.kind is Kind.TRIAL and row.status is Status.CORRECT]
    done = {row.cell for row in right if loop.state.confirmations.get(point(row.candidate, row.params))}
    return [row for row in right if row.cell not in done]


def _unjudged(
    loop: Loop, store: Store, language: str, ticket: TicketRow | None, calls: Sequence[CallRow],
    candidates: Mapping[str, Candidate],
) -> Answered | None:  # fmt: skip
    """The kernel of a reply that led to no proposal; None where it held none, or one that is known."""
    last = calls[-1].call
    if ticket is None or last.outcome not in (Outcome.OK, Outcome.TRUNCATED):
        return None
    parents = [candidates[parent] for parent in ticket.parents]
    try:
        answer = read_reply(whole(store, calls[-1]).reply, language, parents, last.outcome)
        candidate = answered_by(ticket, answer, last.model, language, parents)
        _ = candidate.space
    except (ReplyError, UsageError):
        return None
    if loop.state.gate.twin(candidate):
        return None
    usd = sum(paid.call.usd for paid in calls)
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
