"""Where assignments go out to models and come back as proposals, a round later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from evoforge.core import MetaPrompt, Outcome
from evoforge.emitters import Assignment, Proposal
from evoforge.errors import BudgetSpentError, ReplyError, UsageError
from evoforge.llm import Client, ModelSpec, Reply, Request
from evoforge.prompts import Identity, Prompt, Send, parse_reply, render, scrub_source

__all__ = ["Answered", "Desk"]


@dataclass(frozen=True)
class Answered:
    """What became of an assignment: a proposal, or the `reason` why there is none. `usd` was paid either way.

    Both are empty where nobody was asked, because the budget is spent.
    """

    ticket: int
    assignment: Assignment
    meta_prompt: str
    model: str
    proposal: Proposal | None
    reason: str
    usd: float


@dataclass(frozen=True)
class _Out:
    ticket: int
    assignment: Assignment
    meta_prompt: str
    model: str
    prompt: Prompt
    future: Future[Reply]


class Desk:
    """Asks models side by side, and reads their replies in the order of tickets.

    Args:
        client: keeps the ledger and records every call (`evoforge.llm.Metered`).
        specs: the models, one entry each.
        tokens: the most that a prompt may have.
        send: what may leave this machine.
        at_once: calls in flight.
        asked: prompt hashes of this campaign's earlier calls, so that a question that is asked again is a
            new one.
    """

    def __init__(
        self, client: Client, specs: Sequence[ModelSpec], *, tokens: int, send: Send, at_once: int,
        asked: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self._client = client
        self._specs = {spec.model: spec for spec in specs}
        self._tokens = tokens
        self._send = send
        self._pool = ThreadPoolExecutor(at_once, "evoforge-model")
        self._out: list[_Out] = []
        self._seen = set(asked)
        self.spent = ""

    @property
    def models(self) -> tuple[str, ...]:
        """The models that may be asked; none once the budget is spent."""
        return () if self.spent else tuple(self._specs)

    @property
    def waiting(self) -> int:
        """How many assignments are out."""
        return len(self._out)

    @property
    def out(self) -> frozenset[tuple[str, str]]:
        """(operator, parent's id) of what is being asked."""
        return frozenset(
            (out.assignment.brief.operator, parent.id) for out in self._out for parent in out.assignment.parents
        )

    def submit(self, ticket: int, assignment: Assignment, meta_prompt: MetaPrompt, model: str) -> None:
        """Asks; the answer comes with `collect`."""
        prompt = render(assignment.brief, meta_prompt, tokens=self._tokens, send=self._send)
        request = self._request(model, prompt.system, prompt.user, assignment.emitter, ticket, meta_prompt.ref)
        future = self._pool.submit(self._client.complete, request)
        self._out.append(_Out(ticket, assignment, meta_prompt.ref, model, prompt, future))

    def start(self, model: str, system: str, user: str, purpose: str) -> Future[Reply]:
        """Asks one question beside the assignments; whoever asks reads the answer."""
        return self._pool.submit(self._client.complete, self._request(model, system, user, purpose, None, None))

    def _request(
        self, model: str, system: str, user: str, purpose: str, ticket: int | None, meta_prompt: str | None
    ) -> Request:
        """Told apart from the same question asked before, which a deterministic model would answer the same."""
        spec, attempt = self._specs[model], 0
        while True:
            request = spec.request(system, user, purpose, attempt=attempt, ticket=ticket, meta_prompt=meta_prompt)
            if request.prompt_hash not in self._seen:
                self._seen.add(request.prompt_hash)
                return request
            attempt += 1

    def collect(self) -> list[Answered]:
        """Waits for everything that was asked; in the order of tickets.

        Raises:
            ModelRejectedError: a wrong key or an unknown model: no further call can succeed.
        """
        out, self._out = self._out, []
        try:
            return [self._read(one) for one in out]
        except BaseException:
            for one in out:
                one.future.cancel()
            raise

    def close(self) -> None:
        """Waits for what is in flight, so that its cost is booked; starts nothing more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _read(self, out: _Out) -> Answered:
        try:
            reply = out.future.result()
        except BudgetSpentError as error:
            self.spent = str(error)
            return self._answered(out, None, "", 0.0)
        if reply.outcome not in (Outcome.OK, Outcome.TRUNCATED):
            return self._answered(out, None, f"{reply.outcome}: {reply.reason}", reply.usd)
        parents, language, here = out.assignment.parents, out.assignment.brief.task.language, Identity.here()
        try:
            answer = parse_reply(
                reply.text,
                language=language,
                parent=scrub_source(parents[0].source, language, here) if parents else None,
            )
            proposal = out.assignment.proposal(
                answer, meta_prompt=out.meta_prompt, model=out.model, exemplars=out.prompt.exemplars, usd=reply.usd
            )
            _ = proposal.candidate.space  # a header that cannot be read is a useless reply too
        except (ReplyError, UsageError) as error:
            return self._answered(out, None, str(error), reply.usd)
        return self._answered(out, proposal, "", reply.usd)

    def _answered(self, out: _Out, proposal: Proposal | None, reason: str, usd: float) -> Answered:
        return Answered(out.ticket, out.assignment, out.meta_prompt, out.model, proposal, reason, usd)
