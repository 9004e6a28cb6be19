"""litellm over real HTTP against a server on this machine, in every mood that a provider can have."""

import email.utils
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from evoforge.errors import ModelRejectedError, UsageError
from evoforge.llm import LiteLLMClient, ModelSpec, Outcome, Reply, Request, Usage, close_connections
from evoforge.testing.model_server import (
    Answer,
    ModelServer,
    dripping,
    fault,
    garbage,
    good,
    refused,
    reset,
    slow,
    truncated,
)

KEY = "sk-proj-abcDEF0123456789abcDEF0123456789"
ENVIRON = {"MY_KEY": KEY}
SYSTEM, USER = "You write kernels. " * 40, "Improve this one."


def spec(server: ModelServer, **changes: Any) -> ModelSpec:
    base = ModelSpec("openai/some", server.api_base, "MY_KEY", 1.0, 0.1, 4.0, max_tokens=64, timeout_s=0.4)
    return replace(base, **changes)


class Asked:
    """The reply, what the client waited for, and what the server saw."""

    def __init__(
        self, script: Sequence[Answer] | Callable[..., Answer], attempts: int = 5, timeout_s: float = 0.4, **server: Any
    ) -> None:
        self.waits: list[float] = []
        with ModelServer(script, **server) as running:
            model = spec(running, timeout_s=timeout_s)
            client = LiteLLMClient([model], attempts=attempts, sleep=self.waits.append, environ=ENVIRON)
            self.error: ModelRejectedError | None = None
            try:
                self.reply = client.complete(model.request(SYSTEM, USER, "improve"))
            except ModelRejectedError as error:
                assert isinstance(error.reply, Reply)
                self.error, self.reply = error, error.reply
            self.books, self.requests, self.headers = running.books, running.requests, running.headers
        assert self.books.calls == self.reply.retries + 1  # litellm repeats nothing of its own
        assert len(self.waits) == self.reply.retries


def test_a_good_reply_has_the_servers_counts_and_its_price() -> None:
    asked = Asked([good("int main; // ∑")], key=KEY)
    reply, books = asked.reply, asked.books
    assert (reply.text, reply.outcome, reply.model, reply.reason) == ("int main; // ∑", Outcome.OK, "openai/some", "")
    assert reply.usage == Usage(books.prompt_tokens, 0, books.completion_tokens)
    assert reply.usd == pytest.approx(books.prompt_tokens * 1e-6 + books.completion_tokens * 4e-6, rel=1e-12)
    assert reply.latency_s > 0 and reply.unsure_usd == reply.unsure_tokens == 0
    (sent,) = asked.requests
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert sent["messages"][0]["content"] == SYSTEM and sent["messages"][1]["content"] == USER
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("some", 64, 0.7)


def test_what_is_cached_costs_less() -> None:
    with ModelServer([good("a"), good("b")]) as server:
        client = LiteLLMClient([spec(server)], environ=ENVIRON)
        first = client.complete(spec(server).request(SYSTEM, USER, "x"))
        second = client.complete(spec(server).request(SYSTEM, USER, "x", attempt=1))
        assert server.books.cached_tokens == second.usage.cached_tokens > 128
    fresh = second.usage.prompt_tokens - second.usage.cached_tokens
    assert second.usd == pytest.approx(fresh * 1e-6 + second.usage.cached_tokens * 1e-7 + 4e-6, rel=1e-12)
    assert second.usd < first.usd


@pytest.mark.parametrize(
    ("answer", "outcome", "text"),
    [
        (truncated("half a ker"), Outcome.TRUNCATED, "half a ker"),
        (good("x" * 1000), Outcome.TRUNCATED, "x" * 256),  # the limit that was asked for
        (refused(), Outcome.REFUSED, "I cannot help with that."),
        (refused("I wi", refusal=None), Outcome.REFUSED, "I wi"),
        (good(""), Outcome.EMPTY, ""),
        (good(" \n\t"), Outcome.EMPTY, " \n\t"),
    ],
)
def test_useless_replies_are_outcomes_with_their_cost(answer: Answer, outcome: Outcome, text: str) -> None:
    asked = Asked([answer])
    assert (asked.reply.outcome, asked.reply.text) == (outcome, text)
    assert asked.reply.usage.tokens == asked.books.prompt_tokens + asked.books.completion_tokens
    assert asked.reply.usd > 0 and asked.reply.retries == 0


def test_a_server_that_counts_nothing_is_estimated_for() -> None:
    asked = Asked([good("some text", usage=False)])
    assert asked.reply.usage.prompt_tokens >= asked.books.prompt_tokens
    assert asked.reply.usage.completion_tokens >= asked.books.completion_tokens
    assert asked.reply.usd > 0 and "estimated" in asked.reply.reason


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_what_passes_is_tried_again(status: int) -> None:
    asked = Asked([fault(status), fault(status), good("at last")])
    assert (asked.reply.text, asked.reply.outcome, asked.reply.retries) == ("at last", Outcome.OK, 2)
    assert asked.reply.unsure_tokens == 0
    assert all(wait >= 0 for wait in asked.waits)


def test_a_fault_that_stays_is_a_failed_call_that_cost_nothing() -> None:
    asked = Asked([fault(500, "our database is down")], attempts=3)
    assert (asked.reply.outcome, asked.reply.text, asked.reply.usage, asked.reply.usd) == (
        Outcome.FAILED, "", Usage(), 0.0,
    )  # fmt: skip
    assert asked.books.calls == 3
    assert asked.reply.reason == "the server answered 500: our database is down"


@pytest.mark.parametrize("asked_for", ["7", "date"])
def test_retry_after_is_waited_for(asked_for: str) -> None:
    header = email.utils.formatdate(time.time() + 9, usegmt=True) if asked_for == "date" else asked_for
    asked = Asked([fault(429, retry_after=header), good("x")])
    assert asked.waits[0] >= 7


@pytest.mark.parametrize("header", ["soon", "-5", "nan", "inf", ""])
def test_a_retry_after_that_says_nothing_is_no_wait(header: str) -> None:
    asked = Asked([fault(429, retry_after=header), good("x")])
    assert asked.reply.text == "x" and asked.waits[0] <= 1


def test_nobody_waits_an_hour() -> None:
    asked = Asked([fault(429, "come back later", retry_after="3600"), good("x")])
    assert asked.reply.outcome is Outcome.FAILED and asked.books.calls == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (fault(400, "max_tokens is odd"), r"request is refused \(400\): max_tokens is odd"),
        (fault(402, "pay first"), r"no credit is left \(402\)"),
        (fault(403, "not in your region"), r"may not use it \(403\)"),
        (fault(404, "no such model"), r"unknown model \(404\)"),
        (fault(422, "what"), r"request is refused \(422\)"),
        (fault(429, "You exceeded your quota", code="insufficient_quota"), r"quota is used up \(429\)"),
    ],
)
def test_what_no_repetition_mends_stops_at_once(answer: Answer, said: str) -> None:
    asked = Asked([answer])
    assert asked.error is not None and asked.books.calls == 1
    with pytest.raises(UsageError, match=rf"openai/some: .*{said}.*check the model's name.*MY_KEY"):
        raise asked.error
    assert asked.reply.outcome is Outcome.REJECTED and asked.reply.usd == 0


def test_a_model_that_the_server_does_not_have() -> None:
    assert "unknown model" in str(Asked([good("x")], models=["another"]).error)


def test_a_wrong_key_is_named_by_its_variable_and_never_shown() -> None:
    asked = Asked([good("x")], key="another")
    shown = [str(asked.error), repr(asked.error), repr(asked.reply), asked.reply.reason]
    assert "401" in shown[0] and "MY_KEY" in shown[0]
    assert not any(KEY[:12] in text or KEY[-8:] in text for text in shown), shown
    assert asked.error is not None
    assert asked.error.__context__ is None or KEY not in str(asked.error.__context__)


def test_a_prompt_that_is_refused_or_too_long_concerns_that_prompt_alone() -> None:
    policy = Asked([fault(400, "rejected by our safety system", code="content_policy_violation")])
    assert (policy.error, policy.reply.outcome) == (None, Outcome.REFUSED)
    long = Asked([fault(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded")])
    assert (long.error, long.reply.outcome) == (None, Outcome.FAILED)
    assert "too long" in long.reply.reason


@pytest.mark.parametrize("answer", [slow(), dripping(), reset(), fault(504)])
def test_what_may_have_cost_unseen_is_tried_twice_and_booked_apart(answer: Answer) -> None:
    asked = Asked([answer])
    reply = asked.reply
    assert (reply.outcome, reply.usd, reply.usage) == (Outcome.FAILED, 0.0, Usage())
    assert asked.books.calls == 2
    request = Request("openai/some", SYSTEM, USER, "improve", 64)
    assert reply.unsure_tokens == 2 * (request.most_prompt_tokens + 64)
    assert reply.unsure_usd == pytest.approx(2 * (request.most_prompt_tokens * 1e-6 + 64 * 4e-6), rel=1e-12)


def test_a_reply_after_a_timeout_has_both_costs() -> None:
    asked = Asked([slow(), good("x")])
    assert asked.reply.text == "x" and asked.reply.usd > 0 and asked.reply.unsure_usd > 0
    assert asked.reply.retries == 1


@pytest.mark.parametrize(
    "body",
    [
        "<html>hello</html>", "", "{}", "[1]", "null", '"text"', '{"choices":[]}', '{"choices":[{"message":null}]}',
        '{"choices":[{"index":0,"message":{"role":"assistant","content":7},"finish_reason":"stop"}]}',
        '{"choices":[{"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":"many"}}',
        "[" * 50_000,
    ],
)  # fmt: skip
def test_garbage_is_a_failed_call_and_not_repeated(body: str) -> None:
    asked = Asked([garbage(body)])
    assert asked.error is None and asked.books.calls == 1
    assert asked.reply.outcome in (Outcome.FAILED, Outcome.EMPTY)
    assert "\n" not in asked.reply.reason and "site-packages" not in asked.reply.reason
    assert asked.reply.unsure_tokens > 0 or asked.reply.usage.tokens > 0


def test_an_answer_without_a_choice_costs_what_it_says() -> None:
    reply = Asked([garbage('{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}}')]).reply
    assert (reply.outcome, reply.usage, reply.unsure_tokens) == (Outcome.EMPTY, Usage(9, 0, 0), 0)
    assert reply.usd == pytest.approx(9e-6)


@pytest.mark.parametrize(
    "usage",
    [
        '{"prompt_tokens":-5,"completion_tokens":3,"total_tokens":1}', "null", "{}",
        '{"prompt_tokens":999999999,"completion_tokens":1,"total_tokens":1}',
        '{"prompt_tokens":9,"completion_tokens":999999999,"total_tokens":1}',
        '{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}', '{"prompt_tokens":9,"total_tokens":9}',
    ],
)  # fmt: skip
def test_counts_that_cannot_be_are_not_believed(usage: str) -> None:
    body = '{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":' \
        '{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":' + usage + "}"  # fmt: skip
    reply = Asked([garbage(body)]).reply
    assert 0 < reply.usd + reply.unsure_usd < 0.01
    assert reply.usage.prompt_tokens >= 0
    assert reply.unsure_usd or (reply.usage.completion_tokens == 2 and "estimated" in reply.reason)


def test_nobody_listens() -> None:
    with ModelServer([good("x")]) as server:
        gone = spec(server)
    waits: list[float] = []
    reply = LiteLLMClient([gone], attempts=3, sleep=waits.append, environ=ENVIRON).complete(gone.request("", "x", "y"))
    assert (reply.outcome, reply.retries, reply.unsure_tokens) == (Outcome.FAILED, 2, 0)
    assert "cannot be reached" in reply.reason and len(waits) == 2


def test_nothing_is_tried_again_once_the_time_is_up() -> None:
    with ModelServer([fault(429, retry_after="30")] * 3) as server:
        model, waits = spec(server), list[float]()
        until = time.monotonic() + 20
        client = LiteLLMClient([model], until=until, sleep=waits.append, environ=ENVIRON)
        reply = client.complete(model.request(SYSTEM, USER, "improve"))
        assert (reply.outcome, reply.retries, waits, server.books.calls) == (Outcome.FAILED, 0, [], 1)
        assert "429" in reply.reason


def test_nothing_is_tried_again_once_it_is_stopped() -> None:
    """Whoever waits for its end does not wait for what a provider asks to wait."""
    stopping = threading.Event()
    with ModelServer([fault(429, retry_after="60")]) as server:
        model = spec(server)
        client = LiteLLMClient([model], stopping=stopping, environ=ENVIRON)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(client.complete, model.request(SYSTEM, USER, "improve"))
            while not server.books.calls:
                time.sleep(0.01)
            stopping.set()
            reply = asked.result(timeout=30)
        assert (reply.outcome, server.books.calls) == (Outcome.FAILED, 1)
        assert client.complete(model.request(SYSTEM, USER, "improve")).retries == 0


def test_what_must_not_be_tried_again_is_not() -> None:
    asked: list[bool] = []
    with ModelServer([fault(500), slow(), good("x")]) as server:
        model = spec(server)
        request = replace(
            model.request(SYSTEM, USER, "improve"), again=lambda unsure: asked.append(unsure) or not unsure
        )
        reply = LiteLLMClient([model], sleep=lambda seconds: None, environ=ENVIRON).complete(request)
        assert (reply.outcome, server.books.calls, asked) == (Outcome.FAILED, 2, [False, True])
    assert reply.unsure_tokens == request.most_prompt_tokens + 64


def test_a_prompt_goes_to_nobody_but_the_server_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to where it redirects, nor through a proxy when it is on this machine, nor with another's headers."""
    with ModelServer([good("x")]) as other:
        for status in (301, 307, 308):
            asked = Asked([Answer("moved", status=status, headers={"Location": f"{other.api_base}/chat/completions"})])
            assert asked.error is not None and f"sends the prompt elsewhere ({status})" in str(asked.error)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.api_base.removesuffix("/v1"))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("OPENAI_ORG_ID", "my-org")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "my-project")
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway-Secret: hush\nX-Other: y")
        close_connections()  # what is open was made without these
        asked = Asked([good("here")])
        assert asked.reply.text == "here" and not other.books.calls
        close_connections()
    sent = {name.lower() for name in asked.headers[0]}
    assert not sent & {"openai-organization", "openai-project", "x-gateway-secret", "x-other"}
    assert "authorization" in sent


def test_an_endless_answer_is_cut() -> None:
    asked = Asked([garbage(" " * (17 << 20))], timeout_s=30.0)
    assert (asked.reply.outcome, asked.books.calls) == (Outcome.FAILED, 1)
    assert "longer than any completion" in asked.reply.reason and asked.reply.unsure_tokens > 0


def test_one_providers_key_is_not_sent_to_anothers_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ModelServer([good("x")], key="none") as server:
        free = ModelSpec("openai/some", server.api_base)
        reply = LiteLLMClient([free]).complete(free.request("", "x", "y"))
    assert (reply.outcome, reply.usd) == (Outcome.OK, 0.0)


def test_what_is_missing_is_said_before_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    local = ModelSpec("openai/some", "http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match=r"needs its key in NO_SUCH_KEY.*export it"):
        LiteLLMClient([replace(local, api_key_env="NO_SUCH_KEY")])
    with pytest.raises(UsageError, match="named twice"):
        LiteLLMClient([local, local])
    with pytest.raises(UsageError, match=r"no provider of nonsense-model.*openai/<name>"):
        LiteLLMClient([ModelSpec("nonsense-model", None, None, 1, None, 1)])
    with pytest.raises(UsageError, match=r"usd_per_mtok_in and usd_per_mtok_out"):
        LiteLLMClient([ModelSpec("openai/never-heard-of")])
    with pytest.raises(UsageError, match="needs its key in OPENAI_API_KEY"):
        LiteLLMClient([ModelSpec("openai/gpt-4o-mini")])
    with pytest.raises(UsageError, match=r"OPENAI_BASE_URL would send openai/gpt-4o-mini elsewhere"):
        LiteLLMClient([ModelSpec("openai/gpt-4o-mini")], environ={"OPENAI_BASE_URL": "http://x", "OPENAI_API_KEY": KEY})
    with pytest.raises(UsageError, match="expected one of openai/some, got 'other'"):
        LiteLLMClient([local]).complete(Request("other", "", "x", "y"))
