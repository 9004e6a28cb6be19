"""ask and tell: a person or an agent in the place of a model."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from evoforge.campaign._asked import answered_by, asked_of, proposed_for
from evoforge.campaign._campaign import Campaign
from evoforge.campaign._checks import check_unchanged
from evoforge.campaign._events import Narrator, Observer
from evoforge.campaign._loop import Loop
from evoforge.campaign._models import sent_by
from evoforge.campaign._prepare import prepare
from evoforge.campaign._queries import claims_by_candidate, telling
from evoforge.core import AddStatus, Candidate, Evaluation, Kind, Status, cut
from evoforge.emitters import MODEL_EMITTERS
from evoforge.errors import CampaignLockedError, ReplyError, UsageError
from evoforge.prompts import Answer, Identity, Prompt, code_only, parse_reply, render, scrub_source
from evoforge.storage import PlacementRow, TicketRow, open_store

if TYPE_CHECKING:
    from tenacity import RetryCallState

__all__ = ["Tickets"]

_OUTSIDE = "outside"  # the model that answers, as far as evoforge knows
_HOURS = 24.0
_PATIENCE_S = 90.0  # an answer takes up to a minute to be judged
_LOOK_EVERY_S = 0.25
_MARKS = ("```", "~~~", "<<<<<<< SEARCH")  # of a reply with prose around it; without them it may be a file
_CODE_SIGNS = frozenset(";{}=#@\\*&[]")


class Tickets:
    """Hands out tickets of a campaign and judges what comes back. A context manager.

    The judge is opened for the first answer and kept, so that the next one is judged at once. The
    campaign is locked while it is read or written, and free in between. Who writes it meanwhile, such as another agent
    whose answer is judged, is waited for.

    Args:
        sandbox: the level for what comes from outside; None: the campaign's own.
        patience_s: seconds to wait for another writer.
        waits: is told in a sentence that there is one.

    Raises:
        NotFoundError: no campaign has that name.
        EnvironmentChangedError: it was measured elsewhere.
        UsageError: it was never set up.
    """

    def __init__(
        self, name: str, store_url: str, *, sandbox: str | None = None, observer: Observer | None = None,
        patience_s: float = _PATIENCE_S, waits: Callable[[str], object] = lambda text: None,
    ) -> None:  # fmt: skip
        self._stack = ExitStack()
        self._name, self._sandbox = name, sandbox
        self._narrator = Narrator(observer)
        self._patience_s, self._waits = patience_s, waits
        self._judge: Any = None
        self._store = open_store(store_url, create=False)
        try:
            check_unchanged(self._store.campaign(name))
            self._campaign().known_setup()
        except BaseException:
            self._store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the judge and closes the store; safe to call twice."""
        self._stack.close()
        self._judge = None
        self._store.close()

    def ask(self, emitter: str | None = None, *, hours: float = _HOURS) -> dict[str, Any]:
        """Issues a ticket with everything that a model would be told.

        Raises:
            UsageError: an emitter that there is not, or that has nothing to ask for now.
            CampaignLockedError: another process writes the campaign, and goes on to.
        """
        self._known_emitter(emitter)
        with self._alone():
            ticket, prompt = self._assigned(self._campaign(), emitter, hours)
            self._store.issue_ticket(self._name, ticket)
        return _asked(ticket, prompt, ticket.ticket, ticket.expires)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The campaign as its only writer."""
        import tenacity

        def told(state: RetryCallState) -> None:
            if state.attempt_number == 1:
                self._waits(f"{_held(state)}; waiting for it, up to {self._patience_s:g} s")

        def refused(state: RetryCallState) -> None:
            raise CampaignLockedError(
                f"{_held(state)}, still after {self._patience_s:g} s: a search, or other answers that are judged; "
                "the same call can be made again later"
            ) from None

        with ExitStack() as stack:
            patiently = tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(CampaignLockedError), wait=tenacity.wait_fixed(_LOOK_EVERY_S),
                stop=tenacity.stop_after_delay(self._patience_s), before_sleep=told, retry_error_callback=refused,
            )  # fmt: skip
            patiently(lambda: stack.enter_context(self._store.lock_campaign(self._name)))
            yield

    def preview(self, emitter: str | None = None) -> dict[str, Any]:
        """What `ask` would hand out now, to the letter; `ticket` and `expires` are null, nothing is issued.

        Raises:
            UsageError: as `ask`.
        """
        self._known_emitter(emitter)
        ticket, prompt = self._assigned(self._campaign(), emitter, _HOURS)
        return _asked(ticket, prompt, None, None)

    @staticmethod
    def _known_emitter(emitter: str | None) -> None:
        if emitter is not None and emitter not in MODEL_EMITTERS:
            raise UsageError(f"expected an emitter of {', '.join(MODEL_EMITTERS)}, got {cut(emitter)!r}")

    def _assigned(self, campaign: Campaign, emitter: str | None, hours: float) -> tuple[TicketRow, Prompt]:
        """The next ticket and its text; the same until something in the campaign changes."""
        loop = campaign.restored(None, campaign.row.target, campaign.known_setup(), self._narrator)
        number = loop.next_ticket
        assignment, meta_prompt = loop.assign(number, _OUTSIDE, emitter)
        config = campaign.config
        prompt = render(assignment.brief, meta_prompt, tokens=config.meta_prompts.tokens, send=sent_by(config))
        ticket = replace(
            asked_of(self._name, number, assignment, meta_prompt.ref, prompt),
            prompt=f"{prompt.system}\n\n{prompt.user}",
            expires=(datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds"),
            state="open",
        )
        return ticket, prompt

    def tell(self, number: int, text: str) -> dict[str, Any]:
        """Judges the answer to a ticket: verdict, reason, timing, bound, cell and placement.

        The answer is a kernel's whole source, or a reply as a model would give it (fences, or
        SEARCH/REPLACE edits of the first parent). A ticket is answered once: the same text again gets
        the same verdict without being judged, and an answer that cannot be read leaves it open. Where
        judging was cut off, or the judge itself failed, the same text goes on with it.

        Raises:
            NotFoundError: the campaign issued no such ticket.
            ReplyError: there is no kernel in the answer.
            UsageError: it was answered with another text, has expired, or was never handed out.
            CampaignLockedError: another process writes the campaign, and goes on to.
        """
        campaign, ticket = self._campaign(), self._store.ticket(self._name, number)
        if ticket.state == "asked":
            raise UsageError(
                f"ticket {number} was a model's of the campaign's own; "
                f"ask for another: evoforge ask {shlex.quote(self._name)}"
            )
        candidate = self._candidate(campaign, ticket, text)
        if ticket.state == "open":
            with self._alone():
                # Read again: somebody else may have answered before the campaign was ours.
                campaign, ticket = self._campaign(), self._store.ticket(self._name, number)
                if ticket.state == "open":
                    self._refuse_late(ticket, candidate)
                    known = self._judged(campaign, ticket, candidate)
                    verdict = self._verdict(number, known)
                    if verdict["status"] != Status.HARNESS_ERROR:
                        self._store.settle_ticket(self._name, number, "answered")
                    return verdict
        return self._verdict(number, self._settled(campaign, ticket, candidate))

    def _answer(self, number: int) -> str | None:
        """The candidate that was proposed under a ticket."""
        return next((row.candidate for row in self._store.proposals(self._name) if row.ticket == number), None)

    def _refuse_late(self, ticket: TicketRow, candidate: Candidate) -> None:
        """An open ticket whose judging was cut off takes its own text at any time, others never."""
        known = self._answer(ticket.ticket)
        if known is None and datetime.now(UTC) > datetime.fromisoformat(ticket.expires):
            self._store.settle_ticket(self._name, ticket.ticket, "expired")
            raise self._expired(ticket)
        if known not in (None, candidate.id):
            raise self._taken(ticket)

    def _settled(self, campaign: Campaign, ticket: TicketRow, candidate: Candidate) -> str:
        """The candidate whose verdict a settled ticket has, for the text that got it.

        A text that was known already left no proposal: it is looked for where it was found then.
        """
        if ticket.state == "expired":
            raise self._expired(ticket)
        known = self._answer(ticket.ticket)
        if known is None:
            loop = campaign.restored(None, campaign.row.target, campaign.known_setup(), self._narrator)
            twin = loop.state.gate.twin(candidate)
            known = twin.candidate if twin else None
        elif known != candidate.id:
            known = None
        if known is None:
            raise self._taken(ticket)
        return known

    def _taken(self, ticket: TicketRow) -> UsageError:
        return UsageError(
            f"ticket {ticket.ticket} was answered already, with another text; "
            f"ask for another: evoforge ask {shlex.quote(self._name)}"
        )

    def _expired(self, ticket: TicketRow) -> UsageError:
        return UsageError(
            f"ticket {ticket.ticket} expired on {ticket.expires}; "
            f"ask for another: evoforge ask {shlex.quote(self._name)}"
        )

    def _campaign(self) -> Campaign:
        """The campaign as it is stored now: others may write it between two calls."""
        return Campaign(self._store.campaign(self._name), self._store, replay=None, replay_extend=False)

    def _candidate(self, campaign: Campaign, ticket: TicketRow, text: str) -> Candidate:
        language = campaign.config.language
        parents = [campaign.store.candidate(parent) for parent in ticket.parents]
        shown = scrub_source(parents[0].source, language, Identity.here()) if parents else None
        candidate = answered_by(ticket, _read(text, language, shown), _OUTSIDE, language, parents)
        _ = candidate.space  # a header that cannot be read is said now, and the ticket stays open
        return candidate

    def _judged(self, campaign: Campaign, ticket: TicketRow, candidate: Candidate) -> str:
        """The id of the candidate whose verdict counts: the answer's, or the one whose text it repeats."""
        if self._judge is None:
            config = campaign.config
            if self._sandbox is not None:
                config = config.model_copy(update={"judge": config.judge.model_copy(update={"sandbox": self._sandbox})})
            with ExitStack() as opening:  # a judge that cannot be opened leaves nothing behind
                self._judge = prepare(campaign.row, config, campaign.known_setup(), self._narrator, opening)
                self._stack = opening.pop_all()
        target, judge, setup = self._judge
        loop: Loop = campaign.restored(judge, target, setup, self._narrator)
        twin = loop.accept(ticket.ticket, proposed_for(ticket, candidate, loop.state.archive))
        return candidate.id if twin is None else twin.candidate

    def _verdict(self, number: int, candidate: str) -> dict[str, Any]:
        rows = self._store.evaluations(campaign=self._name, candidate=candidate)
        best = telling([row.evaluation for row in rows])
        placement = _placement(self._store.placements(self._name), candidate)
        tried = any(row.evaluation.kind is Kind.CONFIRM for row in rows)
        own = best is not None and any(row.ticket == number for row in rows)
        return {
            "campaign": self._name,
            "ticket": number,
            "candidate": candidate,
            "status": str(best.status) if own and best else str(Status.DUPLICATE),
            "reason": best.reason if own and best else f"the same program as candidate {candidate[:12]}",
            "params": dict(best.params) if best else {},
            "latency_ms": best.latency_ms if best else None,
            "speedup": self._speedup(best) if best else None,
            "bound_ms": {timing.workload: timing.bound_ms for timing in best.timings} if best else {},
            "roofline_fraction": best.roofline_fraction if best else None,
            "cell": list(best.cell) if best and best.cell else None,
            "placement": placement or (str(AddStatus.REJECTED) if tried else None),
            "max_error": best.max_error if best else None,
            "flags": list(best.flags) if best else [],
            "sandbox": best.sandbox if best else None,
        }

    def _speedup(self, best: Evaluation) -> float | None:
        """What is claimed of a kernel, where it was confirmed, so that `elites` and `export` say the same."""
        claimed = claims_by_candidate(self._store, self._name).get(best.candidate)
        if claimed is None or best.kind is not Kind.CONFIRM or dict(claimed[0].params) != dict(best.params):
            return best.speedup()
        return claimed[1].over_baseline[1]


def _held(state: RetryCallState) -> str:
    """By whom."""
    error = state.outcome.exception() if state.outcome else None
    return str(error).partition(";")[0]


def _read(text: str, language: str, parent: str | None) -> Answer:
    """A reply as a model gives it, or a kernel's file, which is whole where it ends and begins with any code.

    Marks of a reply are none where only a file's comments and string literals hold them.
    """
    if any(mark in text for mark in _MARKS):
        if not any(mark in code_only(text, language) for mark in _MARKS):
            with suppress(ReplyError):
                return _whole(text, language)
        return parse_reply(text, language=language, parent=parent)
    try:
        return parse_reply(text, language=language, parent=parent)
    except ReplyError:
        with suppress(ReplyError):
            return _whole(text, language)
        raise


def _whole(text: str, language: str) -> Answer:
    lines = text.strip().split("\n")
    if _sentence(lines[0]) or _sentence(lines[-1]):
        raise ReplyError("expected a kernel's file, got prose around it; put the kernel in a code block")
    fence = "~" * 64
    return parse_reply(f"{fence}{language}\n{text.rstrip()}\n{fence}", language=language)


def _sentence(line: str) -> bool:
    """Whether a line is prose, which no compiler takes: it begins as a sentence does, or ends so, and holds no code."""
    line = line.strip()
    if " " not in line or not line[0].isalpha() or not _CODE_SIGNS.isdisjoint(line):
        return False
    return line[-1] in ".:!?…" or (line[0].isupper() and not line[1].isupper())


def _placement(rows: Sequence[PlacementRow], candidate: str) -> str | None:
    """What the archive did with a candidate last; REJECTED where it lost its cell again under the same ticket."""
    own = [at for at, row in enumerate(rows) if row.placement.candidate == candidate]
    if not own:
        return None
    last, later = rows[own[-1]], rows[own[-1] + 1 :]
    here = [row for row in later if row.ticket == last.ticket and row.placement.cell == last.placement.cell]
    demoted = str(last.placement.action) == "DEMOTED"
    return str(AddStatus.REJECTED) if here and not demoted else str(last.placement.action)


def _asked(ticket: TicketRow, prompt: Prompt, number: int | None, expires: str | None) -> dict[str, Any]:
    return {
        "campaign": ticket.campaign,
        "ticket": number,
        "emitter": ticket.emitter,
        "operator": ticket.operator,
        "parents": list(ticket.parents),
        "meta_prompt": ticket.meta_prompt,
        "target_cell": list(ticket.target_cell) if ticket.target_cell else None,
        "expires": expires,
        "prompt": {"system": prompt.system, "user": prompt.user},
    }
