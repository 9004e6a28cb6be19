"""What models have cost, what they may still cost, and the client that keeps to it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evoforge.core import Call, Outcome, storable
from evoforge.errors import BudgetSpentError, ModelRejectedError, UsageError
from evoforge.llm.records import Client, Reply, Request, Usage, call_of, reply_of
from evoforge.llm.specs import ModelSpec, prices_of

__all__ = ["Caps", "Ledger", "Metered", "Reservation", "Totals", "longest_of"]

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Caps:
    """The most that models may take; None: no limit. `usd` 0 forbids calls that cost, free ones pass.

    `calls` counts what a provider sees: attempts that are made again are among them.
    """

    usd: float | None = None
    tokens: int | None = None
    calls: int | None = None


@dataclass(frozen=True)
class Totals:
    """Sums over calls. The unsure ones are apart, and count against caps."""

    calls: int = 0
    retries: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float = 0.0
    unsure_usd: float = 0.0
    unsure_tokens: int = 0
    seconds: float = 0.0

    @property
    def requests(self) -> int:
        """What the provider saw."""
        return self.calls + self.retries

    @property
    def most_usd(self) -> float:
        return self.usd + self.unsure_usd

    @property
    def most_tokens(self) -> int:
        return self.usage.tokens + self.unsure_tokens

    def plus(self, reply: Reply) -> Totals:
        mine, more = self.usage, reply.usage
        return Totals(
            calls=self.calls + 1,
            retries=self.retries + reply.retries,
            usage=Usage(
                mine.prompt_tokens + more.prompt_tokens,
                mine.cached_tokens + more.cached_tokens,
                mine.completion_tokens + more.completion_tokens,
            ),
            usd=self.usd + reply.usd,
            unsure_usd=self.unsure_usd + reply.unsure_usd,
            unsure_tokens=self.unsure_tokens + reply.unsure_tokens,
            seconds=self.seconds + reply.latency_s,
        )

    @classmethod
    def of(cls, calls: Iterable[Call]) -> Totals:
        """Of recorded calls: what a resumed campaign has spent."""
        totals = cls()
        for call in calls:
            totals = totals.plus(reply_of(call))
        return totals


def longest_of(calls: Iterable[Call]) -> dict[str, int]:
    """The longest completion that each model was booked for; without those that nothing was heard of."""
    longest: dict[str, int] = {}
    for call in calls:
        if call.prompt_tokens:
            longest[call.model] = max(longest.get(call.model, 0), call.completion_tokens)
    return longest


@dataclass(eq=False)
class Reservation:
    """The most that one call in flight may take. Each is one object: settled or released once.

    `usd` and `tokens` are of the attempt that is being made, and of those before it that may have cost. `request` is
    what they were reckoned for. `beyond_usd` and `beyond_tokens` come on top should its reply be the longest that a
    server is believed to count.
    """

    request: Request
    usd: float
    tokens: int
    attempts: int = 1
    beyond_usd: float = 0.0
    beyond_tokens: int = 0


class Ledger:
    """Books calls so that those in flight cannot overspend together. Safe to use from several threads.

    A call is let go only when its worst case (the whole prompt at a token per two bytes and uncached,
    a reply of `max_tokens`) fits into what is left beside the worst cases in flight, and tried again
    only when another does. What a call took is booked in full.

    Servers there are that count more tokens of a reply than it may have. So the worst case is the longest reply that
    the model was booked for, if that is longer, and until it was booked for one a call that waits its turn waits for
    the model's other one, too. It also waits until it is alone, or the caps hold should all others in flight be as long
    as is believed: a cap is passed by one call, whoever else is asked.

    Args:
        spent: what was settled before.
        longest: as `longest_of` has it of the calls before.
    """

    def __init__(self, caps: Caps, spent: Totals | None = None, longest: Mapping[str, int] | None = None) -> None:
        self.caps = caps
        self._totals = spent or Totals()
        self._longest = dict(longest or {})
        self._news: list[str] = []
        self._told: set[str] = set()
        self._open: set[Reservation] = set()
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def totals(self) -> Totals:
        """What has been settled."""
        with self._changed:
            return self._totals

    @property
    def in_flight(self) -> int:
        """How many calls are being made."""
        with self._changed:
            return len(self._open)

    def news(self) -> list[str]:
        """What a person should know and was not told yet, in sentences: a reply longer than it may be, a cap passed."""
        with self._changed:
            news, self._news = self._news, []
            return news

    def reserve(self, request: Request, spec: ModelSpec, *, wait: bool = False) -> Reservation:
        """Sets the worst case of one attempt aside.

        With `wait` a call that may go only once others are settled waits for them, and those that come after it wait
        for it: which calls are let go depends on their order and on what they took, not on how long.

        Raises:
            BudgetSpentError: it does not fit; says what is left.
            UsageError: the model's price is unknown.
        """
        turn = object()
        with self._changed:
            if wait:
                self._queue.append(turn)
            try:
                while True:
                    if not wait or self._queue[0] is turn:
                        most = self._worst_case(request, spec)
                        problem = self._problem(most, self._open)
                        if problem is None and not (wait and (self._unproven(most) or self._crowded(most, self._open))):
                            self._open.add(most)
                            return most
                        if problem and (not wait or not self._open or self._problem(most, ()) is not None):
                            raise BudgetSpentError(problem)
                    self._changed.wait()
            finally:
                if wait:
                    self._queue.remove(turn)
                    self._changed.notify_all()

    def again(self, reservation: Reservation, request: Request, spec: ModelSpec, unsure: bool) -> bool:
        """Whether a call may be tried once more; sets another worst case aside if the last attempt may have cost."""
        with self._changed:
            # As a whole: what others took beyond their worst case may have used up what was set aside for this one.
            most = replace(reservation, attempts=reservation.attempts + 1)
            if unsure:
                most.usd += prices_of(spec).most_usd(request)
                most.tokens += request.most_tokens
            others = self._open - {reservation}
            if self._problem(most, others) is not None or (unsure and self._crowded(most, others)):
                return False
            reservation.usd, reservation.tokens, reservation.attempts = most.usd, most.tokens, most.attempts
            return True

    def settle(self, reservation: Reservation, reply: Reply) -> None:
        """Books what the call took in place of what was set aside.

        Raises:
            ValueError: it is settled or released already.
        """
        with self._changed:
            self._close(reservation)
            self._totals = self._totals.plus(reply)
            if reply.usage.prompt_tokens:
                self._learn(reservation.request, reply.usage.completion_tokens)
            self._tell_passed()

    def release(self, reservation: Reservation) -> None:
        """Gives back what was set aside for a call that was never made. Raises as `settle`."""
        with self._changed:
            self._close(reservation)

    def _close(self, reservation: Reservation) -> None:
        if reservation not in self._open:
            raise ValueError("a reservation is settled or released once, and by the ledger that made it")
        self._open.remove(reservation)
        self._changed.notify_all()

    def _worst_case(self, request: Request, spec: ModelSpec) -> Reservation:
        request = replace(request, longest=self._longest.get(request.model, 0))
        usd, tokens = prices_of(spec).most_usd(request), request.most_tokens
        longest = replace(request, longest=max(request.longest, request.believable_tokens))
        beyond = prices_of(spec).most_usd(longest) - usd, longest.most_tokens - tokens
        return Reservation(request, usd, tokens, beyond_usd=beyond[0], beyond_tokens=beyond[1])

    def counts(self, request: Request, spec: ModelSpec) -> bool:
        """Whether what the call takes counts against a cap of dollars or tokens."""
        return self.caps.tokens is not None or (self.caps.usd is not None and prices_of(spec).most_usd(request) > 0)

    def _unproven(self, most: Reservation) -> bool:
        """Whether nobody knows yet how long the model's replies are, and one of them is on its way."""
        capped = self.caps.tokens is not None or (self.caps.usd is not None and most.usd > 0)
        model = most.request.model
        return capped and model not in self._longest and any(other.request.model == model for other in self._open)

    def _crowded(self, most: Reservation, others: Iterable[Reservation]) -> bool:
        """Whether the call would not fit should the others be as long as is believed: two could pass a cap then."""
        caps, totals, beside = self.caps, self._totals, list(others)
        if caps.usd is not None and most.usd > 0 and (paid := [other for other in beside if other.usd > 0]):
            usd = totals.most_usd + most.usd + sum(other.usd + other.beyond_usd for other in paid)
            if usd > caps.usd + _ROUNDING:
                return True
        tokens = totals.most_tokens + most.tokens + sum(other.tokens + other.beyond_tokens for other in beside)
        return caps.tokens is not None and bool(beside) and tokens > caps.tokens

    def _learn(self, request: Request, completion: int) -> None:
        self._longest[request.model] = max(self._longest.get(request.model, 0), completion)
        if completion > request.max_tokens:
            self._tell_once(
                request.model,
                f"{request.model} counts {completion:,} tokens of a reply that may have {request.max_tokens:,}; "
                "from now on a call of it sets aside as many as its longest reply took",
            )

    def _tell_passed(self) -> None:
        caps, totals = self.caps, self._totals
        if caps.usd is not None and totals.most_usd > caps.usd + _ROUNDING:
            self._tell_once(
                "dollars", f"models may have cost ${totals.most_usd:.4f}, more than the cap of ${caps.usd:g}"
            )
        if caps.tokens is not None and totals.most_tokens > caps.tokens:
            self._tell_once("tokens", f"models may have taken {totals.most_tokens:,} tokens, more than {caps.tokens:,}")

    def _tell_once(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._news.append(text)

    def _problem(self, most: Reservation, open_: Iterable[Reservation]) -> str | None:
        caps, totals, held = self.caps, self._totals, list(open_)
        if caps.usd is not None and most.usd > 0:
            left = caps.usd - totals.most_usd - sum(other.usd for other in held)
            if most.usd > left + _ROUNDING:
                return _sentence(f"${most.usd:.4f}", f"${max(left, 0):.4f} of ${caps.usd:g}", held)
        if caps.tokens is not None:
            left = caps.tokens - totals.most_tokens - sum(other.tokens for other in held)
            if most.tokens > left:
                return _sentence(f"{most.tokens:,} tokens", f"{max(left, 0):,} of {caps.tokens:,}", held)
        made = totals.requests + sum(other.attempts for other in held)
        if caps.calls is not None and made + most.attempts > caps.calls:
            return _sentence("one of the calls", f"0 of {caps.calls:,}", held)
        return None


def _sentence(most: str, left: str, held: Sequence[Reservation]) -> str:
    flying = f", {len(held)} call{'s' if len(held) > 1 else ''} in flight set aside" if held else ""
    return f"the next call may take {most}, {left} are left{flying}; raise the cap to go on"


class Metered:
    """A `Client` that reserves, asks, settles and records every call, failed and rejected ones too.

    A call is recorded before it is made, as one whose answer nobody heard and that may have cost the most it can:
    that stays should the process end meanwhile. What it came to is put in its place.

    Args:
        record: stores a call and gives its number.
        conclude: puts what the call of that number came to in its place; None: it was never made.
    """

    def __init__(
        self, client: Client, specs: Sequence[ModelSpec], ledger: Ledger,
        record: Callable[[Call], int], conclude: Callable[[int, Call | None], object],
    ) -> None:  # fmt: skip
        self._client, self._ledger, self._record, self._conclude = client, ledger, record, conclude
        self._specs = {spec.model: spec for spec in specs}

    def complete(self, request: Request) -> Reply:
        """Waits while only calls in flight stand in the way of the caps."""
        spec = self._specs.get(request.model)
        if spec is None:
            raise UsageError(f"expected one of {', '.join(self._specs) or 'no models'}, got {request.model!r}")
        held = self._ledger.reserve(request, spec, wait=True)
        number: int | None = None
        reply: Reply | None = None

        def again(unsure: bool) -> bool:
            may = self._ledger.again(held, held.request, spec, unsure)
            if may and number is not None:
                self._conclude(number, call_of(request, _unheard(request, held)))
            return may

        try:
            number = self._record(call_of(request, _unheard(request, held)))
            reply = self._client.complete(replace(held.request, again=again))
            reply = replace(reply, text=storable(reply.text))  # as a replay reads it
            return reply
        except ModelRejectedError as error:
            reply = error.reply if isinstance(error.reply, Reply) else None
            raise
        finally:
            if reply is None:
                self._ledger.release(held)
            else:
                self._ledger.settle(held, reply)
            if number is not None:
                self._conclude(number, call_of(request, reply) if reply is not None else None)


def _unheard(request: Request, held: Reservation) -> Reply:
    """What is known of a call before it is made."""
    return Reply(
        "", Outcome.FAILED, Usage(), 0.0, 0.0, request.model, "in flight, or its process ended before the answer",
        retries=held.attempts - 1, unsure_usd=held.usd, unsure_tokens=held.tokens,
    )  # fmt: skip
