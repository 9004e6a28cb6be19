"""Where assignments go out to models and come back as proposals, a round later."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from functools import partial

from evoforge.campaign._asked import read_reply
from evoforge.campaign._callers import Callers
from evoforge.core import Call, MetaPrompt, Outcome
from evoforge.emitters import Assignment, Proposal
from evoforge.errors import BudgetSpentError, ModelRejectedError, ReplyError, UsageError
from evoforge.llm import Caps, Client, Ledger, ModelSpec, Reply, Request, Usage, reply_of
from evoforge.prompts import Prompt, Send, estimate_tokens, render

__all__ = ["Answered", "Desk"]

_SILENT = (Outcome.FAILED, Outcome.REJECTED)  # ends of a call that nobody answered
_PATIENCE = 3  # rejections in a row after which a model that did answer is asked no more
_LONGEST_REST = 31  # rounds
_SHORTER = 0.6  # of a prompt that was too long for a model, the most of its next ones: the reply takes room, too


@dataclass(frozen=True)
class Answered:
    """What became of a question: a proposal, or the `reason` why there is none. `usd` was paid either way.

    Both are empty where nobody was asked, because the budget is spent. `silent`: nobody answered.
    """

    ticket: int
    emitter: str
    meta_prompt: str
    model: str
    proposal: Proposal | None
    reason: str
    usd: float
    silent: bool = False


@dataclass(frozen=True)
class _Out:
    ticket: int
    assignment: Assignment
    meta_prompt: str
    prompt: Prompt
    request: Request
    future: Future[Reply]

    @property
    def model(self) -> str:
        return self.request.model


class Desk:
    """Asks models side by side, and reads their replies in the order of tickets.

    Args:
        client: keeps `ledger` and records every call (`evoforge.llm.Metered`).
        specs: the models, one entry each.
        tokens: the most that a prompt may have.
        send: what may leave this machine.
        at_once: calls in flight.
        past: this campaign's earlier calls: a question that is asked again is a new one, and who answered once is no
            unknown model.
        asked: keeps what is needed to judge the reply, should this process be gone by then.
        notice: is told in one sentence what a person should know.
        phase: is told what it waits for.
        stopping: is set once no call should be tried again.
        recorded: the replies are: what was asked and not answered in the end was answered then.

    A model that has not answered yet and is rejected (a wrong key, an unknown name) ends it all. One that has is
    given up after three rejections in a row: its quota may be used up at night, while others go on. One of which a
    whole round heard nothing rests for a round, then for 3, 7, 15, 31: each wait for it is one of the device, too.
    Of one that costs and never answered a round's first question goes ahead: if nobody hears of it the others are not
    asked. Where a context is too short for a prompt and the reply that it may get, the longer of the two gives way from
    then on: the replies are asked to be half as long, or the prompts are shorter. What held more before is no such
    context, unless it says so twice.
    """

    def __init__(
        self, client: Client, specs: Sequence[ModelSpec], *, tokens: int, send: Send, at_once: int,
        past: Iterable[Call] = (), asked: Callable[[int, Assignment, str, Prompt], object] = lambda *_: None,
        notice: Callable[[str], object] = lambda text: None, phase: Callable[[str], object] = lambda text: None,
        stopping: threading.Event | None = None, ledger: Ledger | None = None, recorded: bool = False,
    ) -> None:  # fmt: skip
        self._client = client
        self._specs = {spec.model: spec for spec in specs}
        self._tokens = tokens
        self._room: dict[str, int] = {}  # of models that took no more
        self._held: dict[str, int] = {}  # the most tokens of prompt and reply that there was room for
        self.send = send
        self._callers = Callers(at_once)
        self._ledger = ledger or Ledger(Caps())
        self._recorded = recorded
        self._out: list[_Out] = []
        self._ahead: dict[str, Future[Reply]] = {}  # a round's first call of models that never answered
        self._asked = asked
        self._notice, self._phase = notice, phase
        self._seen: set[str] = set()
        self._answered: set[str] = set()
        for call in past:
            self._seen.add(call.prompt_hash)
            if call.outcome not in _SILENT:
                self._answered.add(call.model)
            if spec := next((one for one in specs if one.model == call.model), None):
                # of a longer reply, maybe, than it had been asked for by then
                self._fit(spec.request(call.system, call.user, call.purpose), reply_of(call))
        self._rejected: Counter[str] = Counter()  # in a row
        self._silent: Counter[str] = Counter()  # rounds in a row
        self._rest: Counter[str] = Counter()  # rounds that are left
        self._stopping = stopping or threading.Event()
        self._spent: dict[str, str] = {}

    @property
    def alive(self) -> tuple[str, ...]:
        """The models that are neither given up nor too dear for what is left of the budget."""
        return tuple(name for name in self._specs if name not in self._spent and self._rejected[name] < _PATIENCE)

    @property
    def models(self) -> tuple[str, ...]:
        """The models to ask: those of them that do not rest."""
        return tuple(name for name in self.alive if self._rest[name] <= 0)

    def wake(self) -> bool:
        """Ends every rest, for there is nobody else to ask; whether there was one."""
        rested = self.models != self.alive
        self._rest.clear()
        return rested

    def room(self, model: str) -> int:
        """The most tokens that a prompt for this model may have, by what it took so far."""
        return self._room.get(model, self._tokens)

    def fit(self, request: Request, reply: Reply) -> None:
        """Learns from a reply what there is room for in a model's context; tells what it will do about it once."""
        if text := self._fit(request, reply):
            self._notice(f"{request.model} {text} from now on: {reply.reason}")

    def _fit(self, request: Request, reply: Reply) -> str:
        """What changes for the model."""
        model, prompt = request.model, estimate_tokens(request.system) + estimate_tokens(request.user)
        if reply.outcome is not Outcome.TOO_LONG:
            if reply.usage.prompt_tokens:
                self._held[model] = max(prompt + request.max_tokens, self._held.get(model, 0))
            return ""
        if prompt + request.max_tokens <= self._held.pop(model, 0):
            return ""
        if prompt < request.max_tokens:
            most, spec = request.max_tokens // 2, self._specs[model]
            if most >= spec.max_tokens:
                return ""
            self._specs[model] = replace(spec, max_tokens=most)
            return f"is asked for replies of at most {most} tokens"
        most = int(_SHORTER * prompt)
        if most >= self.room(model):
            return ""
        self._room[model] = most
        return f"gets prompts of at most {most} tokens"

    @property
    def spent(self) -> str:
        """Why the budget lets nobody be asked any more; empty while somebody may be."""
        return "" if self.alive else next(iter(self._spent.values()), "")

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
        try:
            prompt = render(assignment.brief, meta_prompt, tokens=self.room(model), send=self.send)
        except UsageError as error:
            if model in self._room:
                too_short = str(error).partition(";")[0]
                raise UsageError(f"{model} took no longer prompt, so give it more context: {too_short}") from None
            raise
        request = self._request(model, prompt.system, prompt.user, assignment.emitter, ticket, meta_prompt.ref)
        self._asked(ticket, assignment, meta_prompt.ref, prompt)
        future = self._callers.submit(partial(self._complete, request, self._ahead.get(model)))
        if model not in self._answered and self._ledger.counts(request, self._specs[model]):
            self._ahead.setdefault(model, future)
        self._out.append(_Out(ticket, assignment, meta_prompt.ref, prompt, request, future))

    def _complete(self, request: Request, ahead: Future[Reply] | None) -> Reply:
        """Waits for the call `ahead`: which one that is depends on tickets, not on who comes first."""
        if ahead is not None and ahead.exception() is None and ahead.result().outcome is Outcome.FAILED:
            raise CancelledError(f"{request.model} is not asked: nobody heard of the call before")
        return self._client.complete(request)

    def start(self, model: str, system: str, user: str, purpose: str) -> tuple[Request, Future[Reply]]:
        """Asks one question beside the assignments; whoever asks reads the answer."""
        request = self._request(model, system, user, purpose, None, None)
        return request, self._callers.submit(partial(self._client.complete, request))

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
            ModelRejectedError: a wrong key or an unknown model: no call can succeed.
        """
        out, self._out = self._out, []
        self._ahead.clear()
        try:
            heard = [self._hear(one.model, one.future) for one in out]
        except BaseException:
            for one in out:
                one.future.cancel()
            raise
        self._tell_news()
        found = [(one.request, reply) for one, reply in zip(out, heard, strict=True) if isinstance(reply, Reply)]
        for request, reply in sorted(found, key=lambda pair: pair[1].outcome is Outcome.TOO_LONG):
            self.fit(request, reply)
        self._judge([(one.model, reply) for one, reply in zip(out, heard, strict=True) if reply is not None])
        return [self._read(one, reply) for one, reply in zip(out, heard, strict=True)]

    def _hear(self, model: str, future: Future[Reply]) -> Reply | ModelRejectedError | None:
        """None: nobody was asked, what is left of the budget is too little for this model, or the time is up."""
        try:
            return future.result()
        except CancelledError:
            return None
        except BudgetSpentError as error:
            if model not in self._spent and set(self._specs) - {*self._spent, model}:
                self._notice(f"{model} is asked no more: {error}")
            self._spent[model] = str(error)
            return None
        except ModelRejectedError as error:
            return error

    def _judge(self, heard: Sequence[tuple[str, Reply | ModelRejectedError]]) -> None:
        """Counts rejections. A recorded one never ends anything: a replay goes on as its campaign did."""
        self._answered |= {model for model, reply in heard if _reply(reply, model).outcome not in _SILENT}
        self._rest -= Counter(list(self._specs))
        for model in sorted({model for model, _ in heard}):
            if any(_reply(found, name).outcome is not Outcome.FAILED for name, found in heard if name == model):
                self._silent[model] = 0
            else:
                self._silent[model] += 1
                self._rest[model] = min(2 ** self._silent[model] - 1, _LONGEST_REST)
        for model, found in heard:
            if isinstance(found, ModelRejectedError) and model not in self._answered:
                raise found
            reply = _reply(found, model)
            if reply.outcome is Outcome.REJECTED:
                self._rejected[model] += 1
                if self._rejected[model] == _PATIENCE:
                    self._notice(
                        f"{model} was rejected {_PATIENCE} times in a row, it is asked no more: {reply.reason}"
                    )
            elif reply.outcome is not Outcome.FAILED and self._rejected[model] < _PATIENCE:
                self._rejected[model] = 0

    def close(self) -> None:
        """Waits for what is in flight, so that its cost is booked; starts nothing more. Safe to call twice.

        A signal meanwhile leaves it, booked as it is while nobody heard of it: at the most that it may cost.
        """
        self._stopping.set()
        self._callers.close(cancel=not self._recorded, waiting=self._tell_flying)
        self._tell_news()
        self._tell_rejected()

    def _tell_rejected(self) -> None:
        """Replies that nobody collects any more are not judged; a key that is refused has to be told all the same."""
        out, self._out = self._out, []
        told: dict[str, str] = {}
        for one in out:
            if one.future.cancelled() or not one.future.done():
                continue
            found = one.future.exception() or one.future.result()
            if isinstance(found, Reply | ModelRejectedError):
                reply = _reply(found, one.model)
                if reply.outcome is Outcome.REJECTED:
                    told.setdefault(one.model, f"{one.model} was rejected: {reply.reason}")
        for text in told.values():
            self._notice(text)

    def _tell_flying(self) -> None:
        if flying := self._ledger.in_flight:
            calls = "a call" if flying == 1 else f"{flying} calls"
            self._phase(
                f"waiting for {calls} in flight; a signal (Ctrl-C) leaves them, booked at what they cost at most"
            )

    def _tell_news(self) -> None:
        for text in self._ledger.news():
            self._notice(text)

    def _read(self, out: _Out, found: Reply | ModelRejectedError | None) -> Answered:
        if found is None:
            return _answered(out, None, "", 0.0)
        reply = _reply(found, out.model)
        if reply.outcome not in (Outcome.OK, Outcome.TRUNCATED):
            return _answered(out, None, f"{reply.outcome}: {reply.reason}", reply.usd, reply.outcome in _SILENT)
        try:
            language = out.assignment.brief.task.language
            answer = read_reply(reply.text, language, out.assignment.parents, reply.outcome)
            proposal = out.assignment.proposal(
                answer, meta_prompt=out.meta_prompt, model=out.model, exemplars=out.prompt.exemplars, usd=reply.usd
            )
            _ = proposal.candidate.space  # a header that cannot be read is a useless reply too
        except (ReplyError, UsageError) as error:
            return _answered(out, None, str(error), reply.usd)
        return _answered(out, proposal, "", reply.usd)


def _reply(found: Reply | ModelRejectedError, model: str) -> Reply:
    """What a rejection is recorded as, so that a replay reads the same."""
    if isinstance(found, Reply):
        return found
    if isinstance(found.reply, Reply):
        return found.reply
    return Reply("", Outcome.REJECTED, Usage(), 0.0, 0.0, model, str(found))


def _answered(out: _Out, proposal: Proposal | None, reason: str, usd: float, silent: bool = False) -> Answered:
    return Answered(out.ticket, out.assignment.emitter, out.meta_prompt, out.model, proposal, reason, usd, silent)
