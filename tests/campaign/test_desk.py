"""Questions that go out, and what becomes of whom."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from evoforge.campaign._desk import Desk
from evoforge.core import Call, Candidate, MetaPrompt, Outcome
from evoforge.emitters import Assignment
from evoforge.errors import BudgetSpentError, UsageError
from evoforge.llm import Caps, Ledger, LiteLLMClient, Metered, ModelSpec, Reply, Request, ScriptedClient, Usage, call_of
from evoforge.prompts import Brief, KernelBrief, PromptPool, Send, TaskBrief
from evoforge.testing.model_server import Answer, ModelServer, fault, good, truncated

DEAR = ModelSpec("openai/dear", usd_per_mtok_in=9.0, usd_per_mtok_out=9.0)
FREE = ModelSpec("openai/free", usd_per_mtok_in=0.0, usd_per_mtok_out=0.0)
PROMPT: MetaPrompt = next(iter(PromptPool.default("cpp")))
KERNEL = '```cpp\nextern "C" int evo_run(const evo_call*) { return 0; }\n```'


def question(source: str = "x = 1") -> Assignment:
    task = TaskBrief(source, {"default": "in0: f32[8]"}, "tight", "ieee", "cpp", "contract")
    return Assignment(Brief("invent", task), "invent")


def test_a_model_that_has_become_too_dear_is_left_out_while_a_free_one_goes_on() -> None:
    poor = False

    def answer(request: Request) -> str | Reply:
        if poor or request.model == DEAR.model:
            raise BudgetSpentError(f"too little is left for {request.model}")
        return KERNEL

    notices: list[str] = []
    client = ScriptedClient(answer)
    desk = Desk(client, [DEAR, FREE], tokens=24000, send=Send(), at_once=2, notice=notices.append)
    for ticket, spec in enumerate((DEAR, FREE)):
        desk.submit(ticket, question(), PROMPT, spec.model)
    nobody, kernel = desk.collect()
    assert nobody.proposal is None and not nobody.reason and kernel.proposal is not None
    assert desk.models == (FREE.model,) and not desk.spent
    assert notices == [f"{DEAR.model} is asked no more: too little is left for {DEAR.model}"]
    poor = True
    desk.submit(2, question("x = 2"), PROMPT, FREE.model)
    desk.collect()
    desk.close()
    assert desk.models == () and "too little is left" in desk.spent and len(notices) == 1


def test_a_model_whose_context_a_prompt_exceeds_gets_shorter_ones() -> None:
    """Local servers have little context as a rule. It answered, so it does not rest; a resumed campaign knows."""
    sizes: list[int] = []

    def answer(request: Request) -> str | Reply:
        sizes.append(len(request.system) + len(request.user))
        if sizes[-1] > 0.8 * sizes[0]:
            return Reply("", Outcome.TOO_LONG, Usage(), 0.0, 0.0, request.model, "8192 at most")
        return KERNEL

    lines = "".join(f"y{number} = x + {number}\n" for number in range(2000))
    failures = tuple(KernelBrief(Candidate("cpp", f"// {number}\n{lines}"), outcome="WRONG") for number in range(3))
    first = question()
    wide = Assignment(replace(first.brief, bad=failures), "invent")
    notices: list[str] = []
    desk = Desk(ScriptedClient(answer), [FREE], tokens=10**6, send=Send(), at_once=1, notice=notices.append)
    for ticket in range(2):
        desk.submit(ticket, wide, PROMPT, FREE.model)
        (found,) = desk.collect()
    desk.close()
    assert found.proposal is not None and desk.models == (FREE.model,)
    assert sizes[1] < 0.7 * sizes[0] and len(notices) == 1 and "8192 at most" in notices[0]
    call = Call(0, "invent", FREE.model, "x" * 64, "s" * 3000, "u", "", Outcome.TOO_LONG, "", 0, 0, 0, 0.0, 0.0)
    brief = replace(FREE, max_tokens=100)
    again = Desk(ScriptedClient(answer), [brief], tokens=10**6, send=Send(), at_once=1, past=[call])
    assert 0 < again.room(FREE.model) < 3000
    with pytest.raises(UsageError, match="give it more context"):
        again.submit(0, wide, PROMPT, FREE.model)
    again.close()


def test_a_context_that_replies_take_up_gets_shorter_ones() -> None:
    """A prompt shorter than the reply that it may get is not what is too long. A round's refusals count once."""
    context = 6000

    def answer(request: Request) -> str | Reply:
        if len(request.system + request.user) // 3 + request.max_tokens > context:
            return Reply("", Outcome.TOO_LONG, Usage(), 0.0, 0.0, request.model, f"{context} at most")
        return KERNEL

    client, notices = ScriptedClient(answer), list[str]()
    desk = Desk(client, [FREE], tokens=24000, send=Send(), at_once=2, notice=notices.append)
    for start in (0, 2):
        for ticket in (start, start + 1):
            desk.submit(ticket, question(f"x = {ticket}"), PROMPT, FREE.model)
        found = desk.collect()
    desk.close()
    assert all(one.proposal is not None for one in found) and desk.room(FREE.model) == 24000
    assert [request.max_tokens for request in client.requests] == [8192, 8192, 4096, 4096]
    assert notices == [f"{FREE.model} is asked for replies of at most 4096 tokens from now on: 6000 at most"]
    past = [call_of(request, client.complete(request)) for request in tuple(client.requests)]
    again = Desk(client, [FREE], tokens=24000, send=Send(), at_once=1, past=past)
    again.submit(4, question("x = 4"), PROMPT, FREE.model)
    again.collect()
    again.close()
    assert client.requests[-1].max_tokens == 4096 and again.room(FREE.model) == 24000


def test_a_context_that_held_more_before_is_too_short_when_it_says_so_twice() -> None:
    """Behind one name there may be several servers."""
    says = [True, False, True, False, False]

    def answer(request: Request) -> str | Reply:
        if says[request.ticket or 0]:
            return Reply(KERNEL, Outcome.OK, Usage(900, 0, 50), 0.0, 0.0, request.model)
        return Reply("", Outcome.TOO_LONG, Usage(), 0.0, 0.0, request.model, "8192 at most")

    client, notices = ScriptedClient(answer), list[str]()
    desk = Desk(client, [replace(FREE, max_tokens=50)], tokens=24000, send=Send(), at_once=1, notice=notices.append)
    for ticket in range(len(says)):
        assert not notices and desk.room(FREE.model) == 24000
        desk.submit(ticket, question(), PROMPT, FREE.model)
        desk.collect()
    desk.close()
    assert len(notices) == 1 and "8192 at most" in notices[0] and desk.room(FREE.model) < 24000


def test_a_model_that_nobody_hears_of_rests_longer_and_longer() -> None:
    """Each wait for it is one of the device, too."""
    gone = True

    def answer(request: Request) -> str | Reply:
        failed = gone and request.model == DEAR.model
        return Reply("", Outcome.FAILED, Usage(), 0.0, 0.0, request.model, "no answer") if failed else KERNEL

    desk = Desk(ScriptedClient(answer), [DEAR, FREE], tokens=24000, send=Send(), at_once=2)
    asked = []
    for ticket in range(29):
        asked.append(DEAR.model in desk.models)
        for model in desk.models:
            desk.submit(ticket, question(f"x = {ticket}"), PROMPT, model)
        silent = [one.model for one in desk.collect() if one.silent]
        assert silent == [DEAR.model] * asked[-1]
    assert [ticket for ticket, was in enumerate(asked) if was] == [0, 2, 6, 14]
    assert desk.alive == (DEAR.model, FREE.model) and desk.models == (FREE.model,)
    assert desk.wake() and desk.models == desk.alive and not desk.wake()
    gone = False
    desk.submit(29, question(), PROMPT, DEAR.model)
    desk.collect()
    assert desk.models == desk.alive
    desk.close()


def test_a_question_too_long_for_a_prompt_is_never_asked() -> None:
    client = ScriptedClient([])
    desk = Desk(client, [FREE], tokens=24000, send=Send(), at_once=1)
    with pytest.raises(UsageError, match=r"raise meta_prompts\.tokens"):
        desk.submit(0, question("x = 1\n" * 50_000), PROMPT, FREE.model)
    desk.close()
    assert not client.requests and not desk.waiting


def test_what_waits_for_a_call_in_flight_is_not_sent_once_it_is_closed() -> None:
    """Whether it waits for room in the budget or for a thread."""
    rows: dict[int, Call] = {}

    def record(call: Call) -> int:
        rows[number := len(rows)] = call
        return number

    def conclude(number: int, call: Call | None) -> None:
        rows.pop(number) if call is None else rows.update({number: call})

    closing = threading.Event()

    def answer(body: object) -> Answer:
        closing.wait(30)
        return good(KERNEL)

    with ModelServer(answer) as server:
        spec = ModelSpec("openai/some", server.api_base, usd_per_mtok_in=1.0, usd_per_mtok_out=1.0, timeout_s=60.0)
        stopping, caps = threading.Event(), Caps(usd=0.015)  # room for one
        client = Metered(LiteLLMClient([spec], stopping=stopping), [spec], Ledger(caps), record, conclude)
        desk = Desk(client, [spec], tokens=24000, send=Send(), at_once=3, stopping=stopping)
        for ticket in range(5):
            desk.submit(ticket, question(f"x = {ticket}"), PROMPT, spec.model)
        while not server.books.calls:
            time.sleep(0.01)
        thread = threading.Thread(target=desk.close)
        thread.start()
        assert stopping.wait(30)
        closing.set()
        thread.join(60)
        assert not thread.is_alive() and server.books.calls == 1
    assert [call.outcome for call in rows.values()] == [Outcome.OK]


def test_a_signal_leaves_what_is_in_flight() -> None:
    come, told = threading.Event(), list[str]()

    def answer(request: Request) -> str:
        come.wait(60)
        return KERNEL

    def record(call: Call) -> int:
        calls.append(call)
        return 0

    ledger, calls = Ledger(Caps()), list[Call]()
    client = Metered(ScriptedClient(answer), [FREE], ledger, record, lambda *_: None)

    def waits(text: str) -> None:
        told.append(text)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    desk = Desk(client, [FREE], tokens=24000, send=Send(), at_once=2, phase=waits, ledger=ledger)
    desk.submit(0, question(), PROMPT, FREE.model)
    while not calls:
        time.sleep(0.01)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            desk.close()
    finally:
        signal.signal(signal.SIGINT, before)
    desk.close()  # as a stack of callbacks does on its way out
    assert len(told) == 1 and told[0].startswith("waiting for a call in flight; ")
    assert calls[0].outcome is Outcome.FAILED and calls[0].unsure_tokens > 0
    come.set()


def test_what_waits_until_the_time_is_up_is_not_asked() -> None:
    """As behind a model's first call, to a server that is gone."""
    turns = itertools.count()

    def answer(request: Request) -> Reply:
        if next(turns):
            raise CancelledError("its time is up")
        return Reply("", Outcome.FAILED, Usage(), 0.0, 0.0, request.model, "no answer")

    ledger, numbers, rows = Ledger(Caps(usd=5.0)), itertools.count(), dict[int, Call | None]()
    client = Metered(ScriptedClient(answer), [DEAR], ledger, lambda call: next(numbers), rows.__setitem__)
    heard = Call(None, "invent", DEAR.model, "x" * 64, "s", "u", "", Outcome.EMPTY, "", 0, 0, 0, 0.0, 0.0)
    desk = Desk(client, [DEAR], tokens=24000, send=Send(), at_once=3, ledger=ledger, past=[heard])
    for ticket in range(3):
        desk.submit(ticket, question(f"x = {ticket}"), PROMPT, DEAR.model)
    answered = desk.collect()
    desk.close()
    assert sorted(one.silent for one in answered) == [False, False, True] and desk.alive
    assert not any(one.proposal or (one.reason and not one.silent) for one in answered)
    assert sum(row is None for row in rows.values()) == 2, "what was never asked leaves no row"


@pytest.mark.parametrize(
    ("spec", "caps", "ends", "asked"),
    [
        (DEAR, Caps(usd=500.0), Outcome.FAILED, 1),
        (DEAR, Caps(tokens=10**8), Outcome.FAILED, 1),
        (DEAR, Caps(), Outcome.FAILED, 4),
        (FREE, Caps(usd=0.0), Outcome.FAILED, 4),
        (DEAR, Caps(usd=500.0), Outcome.EMPTY, 4),
        (DEAR, Caps(usd=500.0), Outcome.REJECTED, 4),  # a recorded one; who is rejected now ends it all
    ],
)
def test_where_nobody_hears_of_the_first_question_the_rounds_others_are_not_asked(
    spec: ModelSpec, caps: Caps, ends: Outcome, asked: int
) -> None:
    """Of a model that costs and never answered: each of them could wait as long, one after the other."""
    client = ScriptedClient(lambda request: Reply("", ends, Usage(), 0.0, 0.0, request.model, "why"))
    ledger, numbers = Ledger(caps), itertools.count()
    metered = Metered(client, [spec], ledger, lambda call: next(numbers), lambda *_: None)
    recorded = Call(None, "invent", "another", "x" * 64, "s", "u", "", Outcome.OK, "", 0, 0, 0, 0.0, 0.0)
    desk = Desk(metered, [spec], tokens=24000, send=Send(), at_once=4, ledger=ledger, past=[recorded])
    for turn in range(2):
        for ticket in range(4):
            desk.submit(4 * turn + ticket, question(f"x = {turn}, {ticket}"), PROMPT, spec.model)
        heard = [one.ticket for one in desk.collect() if one.reason]
        assert heard == [4 * turn + ticket for ticket in range(asked)]
        assert len(client.requests) == asked * (turn + 1)
        if asked == 1:
            assert client.requests[-1].ticket == 4 * turn, "the first one, whichever thread is faster"
    desk.close()


def test_a_key_that_is_refused_once_the_time_is_up_is_told() -> None:
    """Nobody collects the reply, so nobody judges it."""
    asked, notices = threading.Semaphore(0), list[str]()

    def answer(body: object) -> Answer:
        asked.release()
        return fault(401, "no such key")

    with ModelServer(answer) as server:
        spec = ModelSpec("openai/some", server.api_base)
        desk = Desk(LiteLLMClient([spec]), [spec], tokens=24000, send=Send(), at_once=2, notice=notices.append)
        for ticket in range(2):
            desk.submit(ticket, question(f"x = {ticket}"), PROMPT, spec.model)
        asked.acquire()
        asked.acquire()
        desk.close()
    assert len(notices) == 1 and "openai/some was rejected: " in notices[0] and "(401)" in notices[0]
    desk.close()
    assert len(notices) == 1 and not desk.waiting


def test_what_is_longer_than_it_may_be_is_noticed_once() -> None:
    long = Reply(KERNEL, Outcome.OK, Usage(50, 0, 20_000), 0.3, 0.0, DEAR.model)
    ledger, notices, numbers = Ledger(Caps(usd=0.25)), list[str](), itertools.count()
    client = Metered(ScriptedClient(lambda _: long), [DEAR], ledger, lambda call: next(numbers), lambda *_: None)
    desk = Desk(client, [DEAR], tokens=24000, send=Send(), at_once=2, notice=notices.append, ledger=ledger)
    for ticket in range(3):
        desk.submit(ticket, question(f"x = {ticket}"), PROMPT, DEAR.model)
    answered = desk.collect()
    desk.close()
    assert [one.usd for one in answered] == [0.3, 0.0, 0.0] and not desk.alive
    assert "counts 20,000 tokens of a reply that may have 8,192" in notices[0]
    assert notices[1:] == ["models may have cost $0.3000, more than the cap of $0.25"]


def test_half_of_a_kernel_is_a_useless_reply() -> None:
    """Of one that was cut off between two functions no bracket tells."""
    with ModelServer([truncated(KERNEL.removesuffix("```")), truncated(f"{KERNEL}\nBecause")]) as server:
        spec = ModelSpec("openai/some", server.api_base)
        desk = Desk(LiteLLMClient([spec]), [spec], tokens=24000, send=Send(), at_once=1)
        for ticket in range(2):
            desk.submit(ticket, question(f"x = {ticket}"), PROMPT, spec.model)
        half, whole = desk.collect()
        desk.close()
    assert half.proposal is None and "ends inside its code block" in half.reason
    assert whole.proposal is not None
