from concurrent.futures import ThreadPoolExecutor

import pytest

from evoforge.errors import NotFoundError, UsageError
from evoforge.llm import Outcome, Recorded, Reply, Request, ScriptedClient, Usage, call_of, reply_of


def request(text: str = "x") -> Request:
    return Request("m", "s", text, "improve")


def test_a_script_is_said_in_order_and_ends() -> None:
    whole = Reply("", Outcome.REFUSED, Usage(1, 0, 1), 0.5, 0.1, "m")
    client = ScriptedClient(["one", whole, " "])
    first = client.complete(request())
    assert (first.text, first.outcome, first.usd, first.model) == ("one", Outcome.OK, 0.0, "m")
    assert first.usage.prompt_tokens > 0 and first.usage.completion_tokens == 1
    assert client.complete(request()) == whole
    assert client.complete(request()).outcome is Outcome.EMPTY
    with pytest.raises(UsageError, match="at most 3 calls"):
        client.complete(request())


def test_a_function_answers_every_thread_in_turn() -> None:
    seen: list[str] = []

    def answer(asked: Request) -> str:
        seen.append(asked.user)
        return f"to {asked.user}: {len(seen)}"

    client = ScriptedClient(answer)
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda number: client.complete(request(str(number))).text, range(100)))
    assert sorted(int(text.split()[-1]) for text in texts) == list(range(1, 101))
    assert len(client.requests) == 100


def test_a_recording_answers_what_it_heard_and_nothing_else() -> None:
    asked = request("known")
    heard = Reply("text", Outcome.TRUNCATED, Usage(5, 1, 2), 0.25, 3.0, "m", "", 1)
    calls = {asked.prompt_hash: call_of(asked, heard)}
    client = Recorded(lambda key: reply_of(calls[key]) if key in calls else None)
    assert client.complete(asked) == client.complete(asked) == heard
    with pytest.raises(NotFoundError, match=r"no recorded reply of m to prompt [0-9a-f]{12} \(improve\); replay"):
        client.complete(request("new"))
