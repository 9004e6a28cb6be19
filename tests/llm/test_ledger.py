"""Caps hold whatever comes at once, and the books are the provider's."""

import itertools
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from evoforge.core import Call
from evoforge.errors import BudgetSpentError, ModelRejectedError, UsageError
from evoforge.llm import (
    Caps,
    Ledger,
    LiteLLMClient,
    Metered,
    ModelSpec,
    Outcome,
    Recorded,
    Reply,
    Request,
    Reservation,
    ScriptedClient,
    Totals,
    Usage,
    longest_of,
    reply_of,
)
from evoforge.testing.model_server import Answer, ModelServer, fault, garbage, good, refused, reset, slow, truncated

PAID = ModelSpec("openai/paid", None, None, 1000.0, None, 1000.0, max_tokens=100)
FREE = ModelSpec("openai/free", "http://localhost:1/v1", max_tokens=100)


def ask(spec: ModelSpec = PAID, user: str = "x" * 72) -> Request:
    return spec.request("", user, "improve")  # 100 prompt tokens reserved, 200 in all, $0.2


def reply(usd: float = 0.01, tokens: int = 10, **changes: Any) -> Reply:
    return replace(Reply("x", Outcome.OK, Usage(tokens, 0, 0), usd, 1.0, PAID.model), **changes)


def test_a_call_is_let_go_while_its_worst_case_fits() -> None:
    ledger = Ledger(Caps(usd=0.45))
    first, _ = ledger.reserve(ask(), PAID), ledger.reserve(ask(), PAID)
    assert (first.tokens, first.usd) == (200, pytest.approx(0.2))
    with pytest.raises(BudgetSpentError, match=r"may take \$0.2000, \$0.0500 of \$0.45 are left, 2 calls in"):
        ledger.reserve(ask(), PAID)
    ledger.settle(first, reply(usd=0.01))
    ledger.reserve(ask(), PAID)
    assert ledger.totals == Totals(1, 0, Usage(10, 0, 0), 0.01, 0.0, 0, 1.0)


class Calls(dict[int, Call]):
    """What `Metered` records, by number."""

    def record(self, call: Call) -> int:
        self[len(self)] = call
        return len(self) - 1

    def conclude(self, number: int, call: Call | None) -> None:
        if call is None:
            del self[number]
        else:
            self[number] = call


def test_a_call_is_tried_again_while_that_fits() -> None:
    ledger = Ledger(Caps(usd=0.7, calls=5))
    first = ledger.reserve(ask(), PAID)
    assert ledger.again(first, ask(), PAID, unsure=True)
    assert (first.attempts, first.usd, first.tokens) == (2, pytest.approx(0.4), 400)
    second = ledger.reserve(ask(), PAID)
    assert not ledger.again(second, ask(), PAID, unsure=True), "dollars"
    assert ledger.again(second, ask(), PAID, unsure=False) and ledger.again(second, ask(), PAID, unsure=False)
    assert (second.attempts, second.usd) == (3, pytest.approx(0.2))
    assert not ledger.again(second, ask(), PAID, unsure=False), "calls"
    with pytest.raises(BudgetSpentError, match="one of the calls, 0 of 5 are left, 2 calls in flight"):
        ledger.reserve(ask(FREE), FREE)
    ledger.settle(second, reply(retries=1))  # the third was never made
    ledger.reserve(ask(FREE), FREE)


def test_a_call_stays_booked_at_its_worst_should_the_process_end_in_it() -> None:
    seen: list[Call] = []

    def answered(request: Request) -> Reply:
        seen.append(calls[0])
        assert request.again(True) and not request.again(True)
        seen.append(calls[0])
        return reply()

    calls = Calls()
    Metered(ScriptedClient(answered), [PAID], Ledger(Caps(usd=0.5)), calls.record, calls.conclude).complete(ask())
    first, second = seen
    assert (first.outcome, first.usd, first.reply, first.retries) == (Outcome.FAILED, 0.0, "", 0)
    assert (first.unsure_usd, first.unsure_tokens) == (pytest.approx(0.2), 200)
    assert first.prompt_hash == calls[0].prompt_hash and "in flight" in first.reason
    assert (second.retries, second.unsure_usd, second.unsure_tokens) == (1, pytest.approx(0.4), 400)
    assert calls[0].outcome is Outcome.OK and calls[0].unsure_usd == 0
    with pytest.raises(BudgetSpentError):  # as the next process sees it
        Ledger(Caps(usd=0.5), Totals.of([second])).reserve(ask(), PAID)


def test_nothing_is_tried_again_once_others_took_more_than_there_is() -> None:
    """What was set aside for a call is not there any more when another cost more than it could."""
    for caps in (Caps(usd=0.5), Caps(tokens=500)):
        ledger = Ledger(caps)
        first, second = ledger.reserve(ask(), PAID), ledger.reserve(ask(), PAID)
        assert ledger.again(second, ask(), PAID, unsure=False)
        ledger.settle(first, reply(usd=0.45, tokens=450))
        assert not ledger.again(second, ask(), PAID, unsure=False)
        ledger.settle(second, reply(usd=0.2, tokens=200))
        assert (ledger.totals.usd, ledger.totals.usage.tokens) == (pytest.approx(0.65), 650)


@pytest.mark.parametrize("first", [Caps(usd=0.002), Caps(tokens=2000), Caps(usd=0.02), Caps(tokens=20_000)])
def test_of_a_server_that_minds_no_limit_one_call_overspends(first: Caps) -> None:
    """However many would be in flight: what its replies are booked for is known after the first one."""
    usage = {"prompt_tokens": 50, "completion_tokens": 3000, "total_tokens": 3050}  # of 100 that were asked for
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    calls = Calls()
    with ModelServer([garbage(json.dumps({"choices": [choice], "usage": usage}))]) as server:
        spec = ModelSpec("openai/some", server.api_base, None, 1.0, None, 1.0, max_tokens=100)
        ledger = Ledger(first)
        model = Metered(LiteLLMClient([spec]), [spec], ledger, calls.record, calls.conclude)

        def one(_: int) -> bool:
            try:
                model.complete(ask(spec))
            except BudgetSpentError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            went = sum(pool.map(one, range(20)))
        resumed = Ledger(Caps(usd=ledger.totals.usd + 0.003), ledger.totals, longest_of(calls.values()))
        with pytest.raises(BudgetSpentError, match=r"may take \$0.0031, \$0.0030 of"):
            resumed.reserve(ask(spec), spec)
    assert went == server.books.calls == max(1, int((first.usd or first.tokens * 1e-6) / 3100e-6))
    assert ledger.totals.usd == pytest.approx(went * 3050e-6) == sum(call.usd for call in calls.values())
    told = ledger.news()
    assert told[0].startswith("openai/some counts 3,000 tokens of a reply that may have 100")
    in_dollars, in_tokens = "cost $0.0031, more than the cap of $0.002", "taken 3,050 tokens, more than 2,000"
    passed = (in_dollars if first.usd else in_tokens) if went == 1 else ""
    assert told[1:] == ([f"models may have {passed}"] if passed else [])
    assert not ledger.news()


def test_the_first_call_of_a_model_is_alone_until_it_was_heard() -> None:
    """A failed one tells nothing; models that cost nothing under a cap of dollars need not wait."""
    ledger = Ledger(Caps(usd=1000.0))
    free = [ledger.reserve(ask(FREE), FREE, wait=True) for _ in range(2)]
    assert ledger.in_flight == len(free) == 2
    going: list[Reservation] = []

    def one() -> None:
        going.append(ledger.reserve(ask(), PAID, wait=True))

    threads = [threading.Thread(target=one, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for turn, heard in enumerate((reply(tokens=0, outcome=Outcome.FAILED), reply()), 1):
        threading.Event().wait(0.2)
        assert len(going) == turn, "the others wait"
        ledger.settle(going[-1], heard)
    for thread in threads:
        thread.join(10)
    assert len(going) == 4 and ledger.in_flight == 4


OTHER = replace(PAID, model="openai/other")
BELIEVED_USD = 131.172  # of 131,072 tokens and a prompt


@pytest.mark.parametrize("others", [[PAID] * 3, [OTHER], [PAID, OTHER]])
@pytest.mark.parametrize("caps", [Caps(usd=BELIEVED_USD + 0.1), Caps(tokens=131_272), Caps(usd=3.0, tokens=10**9)])
def test_calls_that_could_pass_a_cap_together_go_one_by_one(caps: Caps, others: list[ModelSpec]) -> None:
    """Whether it is known how long a model's replies are, by one that was short, or not."""
    ledger, going = Ledger(caps), list[Reservation]()
    if len(others) > 1:
        ledger.settle(ledger.reserve(ask(), PAID), reply(usd=0.01, tokens=10))
    going.append(ledger.reserve(ask(), PAID, wait=True))
    refused: list[str] = []

    def one(spec: ModelSpec) -> None:
        try:
            going.append(ledger.reserve(ask(spec), spec, wait=True))
        except BudgetSpentError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=one, args=(spec,), daemon=True) for spec in others]
    for thread in threads:
        thread.start()
    threading.Event().wait(0.2)
    assert len(going) == 1 and not refused, "the others wait"
    ledger.settle(going[0], reply(usd=BELIEVED_USD, tokens=131_172))
    for thread in threads:
        thread.join(10)
    assert len(going) == 1 and len(refused) == len(others), "a cap is passed by one call"


def test_far_from_a_cap_calls_go_beside_each_other() -> None:
    dollars, tokens = Caps(usd=3 * BELIEVED_USD + 0.3), Caps(tokens=3 * 131_172 + 300)
    for spec, caps in ((PAID, dollars), (PAID, tokens), (FREE, Caps(usd=0.1))):
        ledger = Ledger(caps, longest={PAID.model: 50})
        held = [ledger.reserve(ask(spec), spec, wait=True) for _ in range(4)]
        assert ledger.in_flight == len(held) == 4


def test_nothing_that_may_have_cost_is_tried_again_beside_others_near_a_cap() -> None:
    """Else both could be longer than they may be."""
    ledger = Ledger(Caps(usd=BELIEVED_USD + 0.3), longest={PAID.model: 50})
    first, second = (ledger.reserve(ask(), PAID, wait=True) for _ in range(2))
    assert ledger.again(first, ask(), PAID, unsure=False) and not ledger.again(first, ask(), PAID, unsure=True)
    ledger.settle(second, reply())
    assert ledger.again(first, ask(), PAID, unsure=True)


def test_a_cap_can_be_spent_to_the_last_cent() -> None:
    ledger = Ledger(Caps(usd=0.6, tokens=600))
    for _ in range(3):
        ledger.settle(ledger.reserve(ask(), PAID), reply(usd=0.2, tokens=200))
    with pytest.raises(BudgetSpentError):
        ledger.reserve(ask(), PAID)


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        (Caps(tokens=399), r"200 tokens, 199 of 399 are left"),
        (Caps(calls=1), r"one of the calls, 0 of 1 are left"),
        (Caps(usd=0.3), r"\$0.1000 of \$0.3"),
    ],
)
def test_every_cap_stops(caps: Caps, said: str) -> None:
    ledger = Ledger(caps)
    ledger.settle(ledger.reserve(ask(), PAID), reply(usd=0.2, tokens=200, latency_s=30.0))
    with pytest.raises(BudgetSpentError, match=said):
        ledger.reserve(ask(), PAID)


def test_no_dollars_forbid_what_costs_and_let_the_rest_pass() -> None:
    ledger = Ledger(Caps(usd=0))
    with pytest.raises(BudgetSpentError):
        ledger.reserve(ask(), PAID)
    ledger.settle(ledger.reserve(ask(FREE), FREE), reply(usd=0))
    with pytest.raises(UsageError, match="price"):
        ledger.reserve(ask(), ModelSpec("openai/never-heard-of"))


def test_what_may_have_cost_counts_against_caps_and_stays_apart() -> None:
    ledger = Ledger(Caps(usd=0.5, tokens=10_000))
    ledger.settle(ledger.reserve(ask(), PAID), reply(usd=0.0, tokens=0, unsure_usd=0.4, unsure_tokens=400))
    assert (ledger.totals.usd, ledger.totals.most_usd, ledger.totals.most_tokens) == (0.0, 0.4, 400)
    with pytest.raises(BudgetSpentError):
        ledger.reserve(ask(), PAID)


def test_a_reservation_is_closed_once() -> None:
    ledger = Ledger(Caps(usd=0.2))
    held = ledger.reserve(ask(), PAID)
    ledger.release(held)
    for close in (lambda: ledger.release(held), lambda: ledger.settle(held, reply())):
        with pytest.raises(ValueError, match="once"):
            close()
    other = ledger.reserve(ask(), PAID)
    with pytest.raises(ValueError, match="ledger that made it"):
        Ledger(Caps()).settle(other, reply())
    assert ledger.totals == Totals()


def test_a_resumed_ledger_goes_on_where_the_calls_end() -> None:
    calls = Calls()
    model = Metered(
        ScriptedClient([reply(usd=0.2, retries=2), reply(usd=0.2)]),
        [PAID],
        Ledger(Caps()),
        calls.record,
        calls.conclude,
    )
    for _ in range(2):
        model.complete(ask())
    spent = Totals.of(calls.values())
    assert (spent.calls, spent.retries, spent.requests, spent.usd) == (2, 2, 4, 0.4)
    with pytest.raises(BudgetSpentError, match=r"\$0.1000 of \$0.5"):
        Ledger(Caps(usd=0.5), spent).reserve(ask(), PAID)


def test_calls_in_flight_are_waited_for() -> None:
    """Room for one worst case: of eight threads one at a time asks, and all get their turn."""
    flying, most = 0, 0
    lock = threading.Lock()

    class Slow:
        def complete(self, request: Request) -> Reply:
            nonlocal flying, most
            with lock:
                flying += 1
                most = max(most, flying)
            threading.Event().wait(0.002)
            with lock:
                flying -= 1
            return reply(usd=0.01)

    ledger = Ledger(Caps(usd=0.39))
    model = Metered(Slow(), [PAID], ledger, (calls := Calls()).record, calls.conclude)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: model.complete(ask()), range(16)))
    assert (ledger.totals.calls, most) == (16, 1)


def test_who_waits_is_not_overtaken() -> None:
    """Which calls are let go depends on their order, not on how long others take: a replay is quicker."""
    ledger = Ledger(Caps(tokens=1000))

    def call(tokens: int) -> tuple[Request, ModelSpec]:
        spec = replace(FREE, max_tokens=tokens - 100)
        return ask(spec), spec

    first = ledger.reserve(*call(600), wait=True)
    order: list[int] = []

    def later(tokens: int) -> None:
        held = ledger.reserve(*call(tokens), wait=True)
        order.append(tokens)
        ledger.settle(held, reply(tokens=10))

    threads = [threading.Thread(target=later, args=(tokens,), daemon=True) for tokens in (900, 300)]
    for thread in threads:
        thread.start()
        thread.join(0.1)  # 300 would fit beside the 600 in flight
    assert not order
    ledger.settle(first, reply(tokens=10))
    for thread in threads:
        thread.join(10)
    assert order == [900, 300]


def test_a_reply_is_read_as_a_replay_will_read_it() -> None:
    calls = Calls()
    live = Metered(ScriptedClient(["a \0 b \ud800"]), [FREE], Ledger(Caps()), calls.record, calls.conclude)
    assert live.complete(ask(FREE)).text == calls[0].reply == "a \\0 b \\ud800"


def test_parallel_calls_never_overspend() -> None:
    ledger = Ledger(Caps(usd=1.0))
    model = Metered(
        ScriptedClient(lambda request: reply(usd=0.2, tokens=200)),
        [PAID],
        ledger,
        (calls := Calls()).record,
        calls.conclude,
    )

    def one(_: int) -> bool:
        try:
            model.complete(ask())
        except BudgetSpentError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(one, range(64))) == 5
    assert ledger.totals.usd == pytest.approx(1.0)


def test_a_client_that_breaks_leaves_nothing_set_aside() -> None:
    ledger = Ledger(Caps(usd=0.2))
    calls = Calls()
    model = Metered(Recorded(lambda key: None), [PAID], ledger, calls.record, calls.conclude)
    for _ in range(3):
        with pytest.raises(KeyError):
            model.complete(ask())
    with pytest.raises(UsageError, match="expected one of openai/paid, got 'other'"):
        model.complete(Request("other", "", "", "x"))
    assert ledger.totals == Totals() and not calls


def mixed() -> tuple[Answer, ...]:
    return (
        good("```cpp\nint main;\n```"), good("prose and nothing else"), truncated("half"), refused(),
        refused("part", refusal=None), fault(500), fault(429, retry_after="1"), garbage(), good(""), reset(),
        good("x" * 4000), fault(503), good("again"),
    )  # fmt: skip


def test_the_books_are_the_servers_own_whatever_it_does() -> None:
    """Eight threads over HTTP, every mood of a provider, a cap in the way, and a wrong key at the end."""
    turns = itertools.chain([slow()], itertools.cycle(mixed()))  # one wait, so long that a busy machine is in time
    calls = Calls()

    def script(body: Mapping[str, Any]) -> Answer:
        return next(turns)

    with ModelServer(script) as server:
        spec = ModelSpec("openai/some", server.api_base, None, 3.0, 0.3, 15.0, max_tokens=200, timeout_s=10.0)
        client = LiteLLMClient([spec], sleep=lambda seconds: None)
        ledger = Ledger(Caps(usd=0.3))
        model = Metered(client, [spec], ledger, calls.record, calls.conclude)

        def one(number: int) -> bool:
            try:
                model.complete(spec.request("You write kernels. " * 100, f"Number {number}.", "improve", ticket=number))
            except BudgetSpentError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            went = list(pool.map(one, range(200)))
        books = server.books
    totals = ledger.totals
    assert 0 < sum(went) < 200 and not went[-1]  # it ran to its budget
    assert totals.requests == books.calls
    assert totals.usage == Usage(books.prompt_tokens, books.cached_tokens, books.completion_tokens)
    fresh = books.prompt_tokens - books.cached_tokens
    assert totals.usd == pytest.approx(fresh * 3e-6 + books.cached_tokens * 3e-7 + books.completion_tokens * 15e-6)
    assert totals.most_usd <= 0.3
    assert {call.outcome for call in calls.values()} == set(Outcome) - {Outcome.REJECTED, Outcome.TOO_LONG}
    assert replace(Totals.of(calls.values()), seconds=0, usd=0, unsure_usd=0) == replace(
        totals, seconds=0, usd=0, unsure_usd=0
    )
    assert sum(call.usd for call in calls.values()) == pytest.approx(totals.usd)


def test_a_rejected_call_is_booked_and_recorded_and_stops() -> None:
    calls = Calls()
    with ModelServer([fault(500), good("x")], key="right") as server:
        spec = ModelSpec("openai/some", server.api_base)
        ledger = Ledger(Caps(usd=0.0))
        model = Metered(LiteLLMClient([spec], sleep=lambda seconds: None), [spec], ledger, calls.record, calls.conclude)
        with pytest.raises(ModelRejectedError, match="key is refused"):
            model.complete(spec.request("", "x", "improve"))
        assert ledger.totals.requests == server.books.calls == 1
    (call,) = calls.values()
    assert call.outcome is Outcome.REJECTED and "401" in call.reason


def test_a_recorded_conversation_replays() -> None:
    calls = Calls()
    spec = FREE
    script = ScriptedClient(["one", "", reply(usd=0.5, model=spec.model)])
    live = Metered(script, [spec], Ledger(Caps()), calls.record, calls.conclude)
    requests = [spec.request("s", text, "improve", attempt=number) for number, text in enumerate("aab")]
    heard = [live.complete(request) for request in requests]
    known = {call.prompt_hash: reply_of(call) for call in calls.values()}
    assert len(known) == 3
    replayed = Recorded(known.get)
    assert [replayed.complete(request) for request in reversed(requests)] == heard[::-1]
