"""What is stored of a question, and what an answer to it is once whoever asked is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evoforge.core import Call, Candidate, Elite, Outcome, Params
from evoforge.emitters import Assignment, Proposal, inherited_licence
from evoforge.prompts import Answer, Identity, Prompt, parse_reply, scrub_source
from evoforge.storage import CallRow, Store, TicketRow

__all__ = ["answered_by", "asked_of", "proposed_for", "read_reply", "whole"]


def asked_of(campaign: str, number: int, assignment: Assignment, meta_prompt: str, prompt: Prompt) -> TicketRow:
    """The row of a model's question; its call holds the prompt."""
    return TicketRow(
        campaign=campaign,
        ticket=number,
        emitter=assignment.emitter,
        operator=assignment.brief.operator,
        parents=tuple(parent.id for parent in assignment.parents),
        meta_prompt=meta_prompt,
        target_cell=assignment.target_cell,
        exemplars=prompt.exemplars,
        prompt="",
        expires="",
        state="asked",
    )


def whole(store: Store, row: CallRow) -> Call:
    """A call with its texts, which were left out of `row`."""
    same_prompt = store.find_call(row.call.prompt_hash, row.campaign)
    return next((found.call for found in same_prompt if found.id == row.id), row.call)


def read_reply(text: str, language: str, parents: Sequence[Candidate], outcome: Outcome = Outcome.OK) -> Answer:
    """A model's reply, OK or TRUNCATED; edits are of the first parent as it was shown.

    Raises:
        ReplyError: there is no kernel in it.
    """
    shown = scrub_source(parents[0].source, language, Identity.here()) if parents else None
    return parse_reply(text, language=language, parent=shown, cut=outcome is Outcome.TRUNCATED)


def answered_by(
    ticket: TicketRow, answer: Answer, model: str, language: str, parents: Sequence[Candidate]
) -> Candidate:
    """The kernel of an answer, by the stored ticket."""
    return Candidate(
        language=language,
        source=answer.source,
        parents=ticket.parents,
        operator=ticket.operator,
        meta_prompt=ticket.meta_prompt,
        model=model,
        licence=inherited_licence(parents),
        notes={"hypothesis": answer.hypothesis, "exemplars": list(ticket.exemplars)},
    )


def proposed_for(ticket: TicketRow, candidate: Candidate, elites: Iterable[Elite], usd: float = 0.0) -> Proposal:
    """The kernel as it enters the search, beginning at what won on its first parent that is an elite now."""
    known = {elite.candidate: elite for elite in elites}
    parents = [known[parent] for parent in ticket.parents if parent in known]
    hint: Params = dict(parents[0].params) if parents else {}
    return Proposal(
        candidate=candidate,
        operator=ticket.operator,
        emitter=ticket.emitter,
        meta_prompt=ticket.meta_prompt,
        parent_cells=tuple(parent.cell for parent in parents),
        target_cell=ticket.target_cell,
        params_hint=hint,
        cost_usd=usd,
    )
