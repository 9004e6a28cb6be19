"""litellm over real HTTP against a server on this machine, in every mood that a provider can have."""

import contextlib
import email.utils
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
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
    base = ModelSpec("openai/some", server.api_base, "MY_KEY", 1.0, 0.1, 4.0, max_tokens=64, timeout_s=30.0)
    return replace(base, **changes)


class Asked:
    """The reply, what the client waited for, and what the server saw."""

    def __init__(
        self,
        script: Sequence[Answer] | Callable[..., Answer],
        attempts: int = 5,
        timeout_s: float = 30.0,
        **server: Any,
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


def completion(message: object, end: object = "stop", usage: object = None) -> str:
    choice = {"index": 0, "message": message, "finish_reason": end}
    counts = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12} if usage is None else usage
    return json.dumps({"object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": counts})


@contextlib.contextmanager
def answering(parts: Iterator[bytes]) -> Iterator[str]:
    """A server's address that sends the same bytes to whoever asks, as slowly as they come."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                caller, _ = listening.accept()
                with caller, caller.makefile("rb") as request:
                    length = 0  # what is left unread when a connection is closed breaks it
                    while (line := request.readline()).strip():
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.partition(b":")[2])
                    request.read(length)
                    for part in parts:
                        caller.sendall(part)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        thread.join(30)
        assert not thread.is_alive()


def ask_raw(parts: Iterator[bytes], timeout_s: float = 30.0) -> Reply:
    with answering(parts) as address:
        model = ModelSpec("openai/some", address, None, 1.0, None, 4.0, max_tokens=64, timeout_s=timeout_s)
        return LiteLLMClient([model], attempts=1).complete(model.request(SYSTEM, USER, "improve"))


def ask_anthropic(body: dict[str, object], status: str = "200 OK") -> Reply:
    sent = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
    with answering(iter([head.encode() + sent])) as address:
        model = ModelSpec("anthropic/some", address.removesuffix("/v1"), "MY_KEY", 1.0, None, 4.0, max_tokens=64)
        client = LiteLLMClient([model], attempts=1, environ=ENVIRON)
        try:
            return client.complete(model.request(SYSTEM, USER, "improve"))
        except ModelRejectedError as error:
            assert isinstance(error.reply, Reply)
            return error.reply


def test_anthropics_protocol_without_counts_is_estimated_for() -> None:
    content = [{"type": "text", "text": "a kernel"}]
    body = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": content}
    reply = ask_anthropic({**body, "stop_reason": "end_turn"})
    assert (reply.text, reply.outcome, reply.unsure_tokens) == ("a kernel", Outcome.OK, 0)
    assert "they are estimated" in reply.reason and reply.usage.prompt_tokens > 100


MESSAGE = {"type": "message", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "a kernel"}]}


@pytest.mark.parametrize(
    "bent",
    [
        {"content": "a kernel"},
        {"content": ["a ", {"text": "kernel"}, 7]},
        {"error": None},
        {"model": None, "stop_reason": None},
        {"usage": None, "error": {}},
    ],
)
def test_bent_answers_of_anthropics_protocol_are_read(bent: dict[str, object]) -> None:
    """With and without what nobody reads."""
    whole = {**MESSAGE, "usage": {"input_tokens": 9, "output_tokens": 3}, "stop_reason": "end_turn", **bent}
    bare = {name: value for name, value in whole.items() if name not in ("model", "stop_reason")}
    for body in (whole, bare):
        reply = ask_anthropic(body)
        assert (reply.text, reply.outcome, reply.unsure_tokens) == ("a kernel", Outcome.OK, 0)
        assert reply.usage == Usage(9, 0, 3) or bent.get("usage", 7) is None


def test_an_error_of_anthropics_is_its_message() -> None:
    error = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
    reply = ask_anthropic(error, "401 Unauthorized")
    assert reply.outcome is Outcome.REJECTED and reply.reason.startswith("the key is refused (401): invalid x-api-key")
    assert KEY not in reply.reason and "litellm" not in reply.reason


@pytest.mark.parametrize(
    ("body", "outcome", "text", "said"),
    [
        ({"choices": [{"message": {"content": "kernel"}}], "usage": {"input_tokens": 9, "output_tokens": 3}},
         Outcome.OK, "kernel", ""),
        ({}, Outcome.EMPTY, "", "no choice"),
        ({"choices": None}, Outcome.EMPTY, "", "no choice"),
        ({"choices": [{"text": "kernel", "finish_reason": "length"}]}, Outcome.TRUNCATED, "kernel", ""),
        ({"choices": [{"message": {"tool_calls": [{"id": "c"}]}}]}, Outcome.EMPTY, "", "a tool"),
        ({"choices": [{"message": {"function_call": {"name": "x"}}}]}, Outcome.EMPTY, "", "a tool"),
    ],
)  # fmt: skip
def test_bent_completions_are_booked_exactly(body: dict[str, object], outcome: Outcome, text: str, said: str) -> None:
    whole = {"object": "chat.completion", "usage": {"prompt_tokens": 9, "completion_tokens": 3}, **body}
    reply = Asked([Answer(body=json.dumps(whole))]).reply
    assert (reply.outcome, reply.text, reply.usage) == (outcome, text, Usage(9, 0, 3))
    assert said in reply.reason and bool(said) == bool(reply.reason)


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


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        (("stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "COMPLETE", "", None, 7), Outcome.OK),
        (
            ("length", "LENGTH", "max_tokens", "model_length", "abort", "insufficient_system_resource", "incomplete",
             "timeout", "cancelled", "error", "network_error", "model_context_window_exceeded", "pause_turn"),
            Outcome.TRUNCATED,
        ),
        (("content_filter", "SAFETY", "sensitive", "refusal", "content_filter: RECITATION"), Outcome.REFUSED),
    ],
)  # fmt: skip
def test_a_reply_is_whole_only_where_its_end_is_known(ends: Sequence[object], outcome: Outcome) -> None:
    answers = [garbage(completion({"role": "assistant", "content": "text"}, end)) for end in ends]
    with ModelServer(answers) as server:
        client = LiteLLMClient([spec(server)], environ=ENVIRON)
        for attempt, end in enumerate(ends):
            reply = client.complete(spec(server).request(SYSTEM, USER, "x", attempt=attempt))
            assert (reply.outcome, reply.text) == (outcome, "text"), end
            assert ask_anthropic({**MESSAGE, "stop_reason": end}).outcome is outcome, end


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


@pytest.mark.parametrize(
    "header",
    ["soon", "-5", "nan", "", "Wed, 99 Oct 99999 07:28:00 GMT", "Mon, 01 Jan 0001 00:00 -0000"],
)
def test_a_retry_after_that_says_nothing_is_no_wait(header: str) -> None:
    asked = Asked([fault(429, retry_after=header), good("x")])
    assert asked.reply.text == "x" and asked.waits[0] <= 1


@pytest.mark.parametrize("header", ["3600", "1e400", "inf", "9" * 400])
def test_nobody_waits_an_hour(header: str) -> None:
    asked = Asked([fault(429, "come back later", retry_after=header), good("x")])
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


@pytest.mark.parametrize(
    "said", ["Last message must have role `user`", "unknown field: parameter index is not a valid field"]
)
def test_what_litellm_would_ask_in_other_words_is_asked_once(said: str) -> None:
    asked = Asked([fault(400, said)])
    assert asked.error is not None and asked.books.calls == 1
    assert (asked.reply.outcome, asked.reply.unsure_tokens) == (Outcome.REJECTED, 0)
    assert asked.reply.reason == f"the request is refused (400): {said}"


ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(
    "said", [ALTERNATE, "After the optional system message, user and assistant roles should be alternating",
             "System role not supported"],
)  # fmt: skip
def test_a_template_without_a_system_message_gets_one_message(said: str, status: int) -> None:
    def answer(body: Any) -> Answer:
        return fault(status, said) if body["messages"][0]["role"] == "system" else good("x")

    with ModelServer(answer) as server:
        model = spec(server)
        client = LiteLLMClient([model], sleep=lambda seconds: None, environ=ENVIRON)
        for attempt, retries in enumerate((1, 0)):
            reply = client.complete(model.request(SYSTEM, USER, "improve", attempt=attempt))
            assert (reply.text, reply.retries, reply.unsure_tokens) == ("x", retries, 0)
        assert server.books.calls == 3
        assert server.requests[-1]["messages"] == [{"role": "user", "content": f"{SYSTEM}\n\n{USER}"}]


def test_a_server_that_wants_to_be_asked_otherwise_is_from_then_on() -> None:
    def answer(body: Any) -> Answer:
        if "max_tokens" in body:
            return fault(400, "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
        if "temperature" in body:
            return fault(400, "'temperature' does not support 0.7 with this model. Only the default (1) is supported.")
        if not body.get("stream"):
            return fault(400, "This model only support stream mode, please enable the stream parameter.")
        return garbage('data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')

    with ModelServer(answer) as server:
        model = spec(server)
        client = LiteLLMClient([model], sleep=lambda seconds: None, environ=ENVIRON)
        for attempt, retries in enumerate((3, 0)):
            reply = client.complete(model.request(SYSTEM, USER, "improve", attempt=attempt))
            assert (reply.text, reply.outcome, reply.retries) == ("x", Outcome.OK, retries)
            assert reply.unsure_tokens == 0
        assert server.books.calls == 5 and server.requests[-1]["max_completion_tokens"] == model.max_tokens
        assert server.requests[-1]["messages"] == server.requests[0]["messages"]


def test_a_template_that_takes_neither_rejects() -> None:
    for attempts in (1, 5):
        asked = Asked([fault(400, ALTERNATE)], attempts=attempts)
        assert asked.error is not None and asked.books.calls == min(attempts, 2)
        assert ALTERNATE in asked.reply.reason and asked.reply.outcome is Outcome.REJECTED


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
    assert (long.error, long.reply.outcome) == (None, Outcome.TOO_LONG)
    assert "too long" in long.reply.reason


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000",
        "context_length_exceeded",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000",
        "Input is too long for requested model.",
        "The input token count (40000) exceeds the maximum number of tokens allowed (32768).",
        "Range of input length should be [1, 30720]",
        "prompt too long; exceeded max context length by 12 tokens",
    ],
)
def test_a_prompt_that_is_too_long_is_known_however_it_is_said(said: str) -> None:
    as_text = json.dumps({"error": said})
    for answer in (fault(400, said), fault(422, said), fault(500, said), garbage(as_text)):
        asked = Asked([answer])
        assert (asked.error, asked.reply.outcome, asked.books.calls) == (None, Outcome.TOO_LONG, 1), answer
        assert "the prompt is too long for the model" in asked.reply.reason and said[:30] in asked.reply.reason
    many = fault(429, "too many tokens a minute for this context length")
    assert Asked([many, good("x")]).reply.text == "x"


@pytest.mark.parametrize("answer", [slow(), dripping(), reset(), fault(504)])
def test_what_may_have_cost_unseen_is_tried_twice_and_booked_apart(answer: Answer) -> None:
    asked = Asked([answer], timeout_s=1.0)
    reply = asked.reply
    assert (reply.outcome, reply.usd, reply.usage) == (Outcome.FAILED, 0.0, Usage())
    assert asked.books.calls == 2
    request = Request("openai/some", SYSTEM, USER, "improve", 64)
    assert reply.unsure_tokens == 2 * (request.most_prompt_tokens + 64)
    assert reply.unsure_usd == pytest.approx(2 * (request.most_prompt_tokens * 1e-6 + 64 * 4e-6), rel=1e-12)


def test_a_reply_after_a_timeout_has_both_costs() -> None:
    asked = Asked([slow(), good("x")], timeout_s=1.5)
    assert asked.reply.text == "x" and asked.reply.usd > 0 and asked.reply.unsure_usd > 0
    assert asked.reply.retries == 1


@pytest.mark.parametrize(
    "body",
    [
        "<html>hello</html>", "", "{}", "[1]", "null", '"text"', '{"choices":[]}', '{"choices":[{"message":null}]}',
        '{"choices":[{"index":0,"message":{"role":"assistant","content":7},"finish_reason":"stop"}]}',
        '{"choices":{"0":1}}', '{"detail":"hm"}', "[" * 50_000,
        '{"error":{"a":' * 900 + "1" + "}" * 1800, "data: " + "[" * 50_000, 'data: {"choices":5}', 'data: {"usage":7}',
        'data: {"choices":5}\ndata: {"choices":[{"delta":{"content":3},"finish_reason":["x"]}]}\ndata: {"usage":"x"}',
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
        '{"prompt_tokens":"many"}', '[9]', '"9"', '{"prompt_tokens":9.5,"completion_tokens":3.5,"total_tokens":13}',
        '{"prompt_tokens":NaN,"completion_tokens":3}', '{"prompt_tokens":true,"completion_tokens":true}',
        '{"prompt_tokens":9,"completion_tokens":' + "9" * 400 + "}",
    ],
)  # fmt: skip
def test_counts_that_cannot_be_are_not_believed(usage: str) -> None:
    body = '{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":' \
        '{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":' + usage + "}"  # fmt: skip
    reply = Asked([garbage(body)]).reply
    assert 0 < reply.usd + reply.unsure_usd < 0.01
    assert reply.usage.prompt_tokens >= 0
    assert reply.usage.completion_tokens == 2 and "estimated" in reply.reason


def test_a_count_that_a_reply_has_characters_for_is_believed() -> None:
    """A server that stops at no limit is paid for what it wrote, though that is more than any model may write."""
    usage = {"prompt_tokens": 9, "completion_tokens": 150_000, "total_tokens": 150_009}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x" * 600_000}, "finish_reason": "stop"}
    reply = Asked([garbage(json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}))]).reply
    assert (reply.outcome, reply.usage, reply.reason) == (Outcome.TRUNCATED, Usage(9, 0, 150_000), "")


def test_what_a_server_bills_beyond_the_limit_is_booked() -> None:
    """Thoughts, say, that no limit holds for."""
    usage = {"prompt_tokens": 300, "completion_tokens": 100_000, "total_tokens": 100_300}
    reply = Asked([garbage(completion({"role": "assistant", "content": "fine"}, "length", usage))]).reply
    assert (reply.outcome, reply.usage) == (Outcome.TRUNCATED, Usage(300, 0, 100_000))
    assert reply.usd == pytest.approx(300e-6 + 0.4)


@pytest.mark.parametrize(
    ("counts", "booked"),
    [
        ({"total_tokens": 6400, "completion_tokens_details": {"reasoning_tokens": 6000}}, Usage(300, 0, 6100)),
        ({"total_tokens": 6400}, Usage(300, 0, 6100)),
        ({"completion_tokens_details": {"reasoning_tokens": 6000}}, Usage(300, 0, 6100)),
        ({"total_tokens": 400, "completion_tokens_details": {"reasoning_tokens": 60}}, Usage(300, 0, 100)),
        ({"total_tokens": 500, "prompt_tokens_details": {"cached_tokens": 200}}, Usage(300, 200, 200)),
        ({"total_tokens": 1400, "prompt_tokens_details": {"cached_tokens": 1000}}, Usage(1300, 1000, 100)),
        ({"total_tokens": 600, "cache_read_input_tokens": 200}, Usage(500, 200, 100)),
        ({"total_tokens": 7}, Usage(300, 0, 100)),
        ({"total_tokens": -6400}, Usage(300, 0, 100)),
        ({"total_tokens": 999_999_999}, Usage(300, 0, 100)),
        ({"completion_tokens_details": {"reasoning_tokens": 999_999_999}}, Usage(300, 0, 100)),
        ({"total_tokens": "many", "completion_tokens_details": {"reasoning_tokens": -6000}}, Usage(300, 0, 100)),
    ],
)
def test_thoughts_counted_beside_the_completion_are_booked(counts: dict[str, object], booked: Usage) -> None:
    usage = {"prompt_tokens": 300, "completion_tokens": 100, **counts}
    reply = Asked([garbage(completion({"role": "assistant", "content": "fine"}, usage=usage))]).reply
    assert reply.usage == booked
    fresh = booked.prompt_tokens - booked.cached_tokens
    assert reply.usd == pytest.approx(fresh * 1e-6 + booked.cached_tokens * 1e-7 + booked.completion_tokens * 4e-6)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "int "}, {"type": "text", "text": "main;"}], "int main;"),
        ([{"type": "reasoning", "text": "I think"}, {"type": "text", "text": "int main;"}], "int main;"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"text": "int main;"}], "int main;"),
        (["int ", {"type": "output_text", "text": "main;"}, 7, {"type": "text", "text": None}], "int main;"),
        ([{"type": "image_url", "image_url": {"url": "x"}}], ""),
        ([], ""),
    ],
)
def test_a_text_in_parts_is_read_as_one(content: list[object], text: str) -> None:
    reply = Asked([garbage(completion({"role": "assistant", "content": content}))]).reply
    assert (reply.text, reply.outcome) == (text, Outcome.OK if text else Outcome.EMPTY)
    assert reply.usage == Usage(9, 0, 3) and reply.unsure_tokens == 0


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            {"content": None, "reasoning_content": "I think " * 40},
            "thought and wrote nothing; with a larger max_tokens",
        ),
        ({"content": "", "reasoning": "I think"}, "thought and wrote nothing"),
        ({"content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]}, "no text"),
        ({"tool_calls": "x"}, "no text"),
    ],
)
def test_a_reply_without_a_text_says_what_it_was(message: dict[str, object], said: str) -> None:
    for end in ("stop", "length", "tool_calls"):
        reply = Asked([garbage(completion({"role": "assistant", **message}, end))]).reply
        assert (reply.outcome, reply.text, reply.usage) == (Outcome.EMPTY, "", Usage(9, 0, 3))
        assert said in reply.reason


def test_thoughts_that_nobody_counted_are_estimated_too() -> None:
    reply = Asked([garbage(completion({"content": "x", "reasoning_content": "t" * 299}, usage={}))]).reply
    assert (reply.outcome, reply.usage.completion_tokens) == (Outcome.OK, 100)


@pytest.mark.parametrize(
    "odd",
    [
        {"audio": 5, "annotations": 7}, {"tool_calls": "x"}, {"tool_calls": [{"x": 1}]}, {"reasoning_content": 5},
        {"thinking_blocks": 5}, {"provider_specific_fields": 7}, {"refusal": 5}, {"role": None}, {"function_call": []},
    ],
)  # fmt: skip
def test_odd_fields_that_nobody_reads_do_no_harm(odd: dict[str, object]) -> None:
    usage = {"prompt_tokens": "9", "completion_tokens": 3.0, "completion_tokens_details": {"reasoning_tokens": "x"}}
    reply = Asked([garbage(completion({"role": "assistant", "content": "fine", **odd}, None, usage))]).reply
    assert (reply.text, reply.outcome, reply.usage, reply.reason) == ("fine", Outcome.OK, Usage(9, 0, 3), "")


def events(*deltas: dict[str, str], end: str | None = "stop", **last: object) -> str:
    told: list[dict[str, object]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    told.append({"choices": [{"index": 0, "delta": {}, "finish_reason": end}], **last})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in told)


def test_a_stream_that_nobody_asked_for_is_put_together() -> None:
    deltas = ({"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"content": "int "}, {"content": "x;"})
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    whole = Asked([garbage(f": hello\n\n{events(*deltas, usage=usage)}data: [DONE]\n\n")]).reply
    assert (whole.text, whole.outcome, whole.usage) == ("int x;", Outcome.OK, Usage(9, 0, 3))
    cut = Asked([garbage(events(*deltas, end=None))]).reply
    assert (cut.text, cut.outcome) == ("int x;", Outcome.TRUNCATED)
    broken = Asked([garbage(events(*deltas, end=None, error={"message": "Overloaded"})), good("x")]).reply
    assert (broken.text, broken.retries) == ("x", 1)


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        ("Overloaded, try again later", Outcome.FAILED, "Overloaded"),
        ({"message": "Rate limit reached", "type": "rate_limit_error", "code": 429}, Outcome.FAILED, "Rate limit"),
        ({"message": "The upstream timed out"}, Outcome.FAILED, "timed out"),
        ({"message": "Internal error", "code": "502"}, Outcome.FAILED, "Internal error"),
        ({"object": "error", "message": "no capacity"}, Outcome.FAILED, "no capacity"),
    ],
)
def test_an_error_with_a_status_of_success_that_passes_is_tried_again(
    error: object, outcome: Outcome, said: str
) -> None:
    whole = error if isinstance(error, dict) and "object" in error else {"error": error}
    assert Asked([garbage(json.dumps(whole)), good("at last")]).reply.text == "at last"
    reply = Asked([garbage(json.dumps({**whole, "choices": []}))], attempts=2).reply
    assert (reply.outcome, reply.retries, reply.unsure_tokens) == (outcome, 1, 0)
    assert said in reply.reason and "200, with an error" in reply.reason


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ({"message": "Invalid API key", "code": 401}, "the key is refused"),
        ("Unauthorized", "the key is refused"),
        ({"message": "You exceeded your quota", "type": "insufficient_quota"}, "no credit is left"),
        ({"message": "The model `some` does not exist"}, "unknown model"),
        ({"message": "temperature is odd", "code": 400}, "the request is refused"),
    ],
)
def test_an_error_with_a_status_of_success_that_stays_stops_at_once(error: object, said: str) -> None:
    asked = Asked([garbage(json.dumps({"error": error}))])
    assert said in str(asked.error) and asked.books.calls == 1


def test_an_error_that_says_nothing_known_is_a_failed_call() -> None:
    for error in ("computer says no", {"message": None, "why": "computer says no"}, ["computer says no"]):
        asked = Asked([garbage(json.dumps({"error": error}))])
        assert (asked.error, asked.reply.outcome, asked.books.calls) == (None, Outcome.FAILED, 1)
        assert "computer says no" in asked.reply.reason and asked.reply.unsure_tokens > 0
    refusal = Asked([garbage(json.dumps({"error": {"message": "no", "code": "content_policy_violation"}}))])
    assert (refusal.error, refusal.reply.outcome) == (None, Outcome.REFUSED)
    assert Asked([garbage(completion({"content": "x"})[:-1] + ',"error":null}')]).reply.text == "x"


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
        late = LiteLLMClient([model], until=time.monotonic() - 1, environ=ENVIRON)
        with pytest.raises(CancelledError, match="time is up"):
            late.complete(model.request(SYSTEM, USER, "improve"))
        assert server.books.calls == 1
    with ModelServer([fault(429)] * 3) as server:  # a sleep may take longer than it should
        model, until = spec(server), time.monotonic() + 2

        def overslept(seconds: float) -> None:
            time.sleep(max(until - time.monotonic(), 0) + 0.01)

        client = LiteLLMClient([model], until=until, sleep=overslept, environ=ENVIRON)
        reply = client.complete(model.request(SYSTEM, USER, "improve"))
        assert (reply.outcome, reply.retries, server.books.calls) == (Outcome.FAILED, 0, 1)


def test_nothing_is_tried_again_once_it_is_stopped() -> None:
    """Whoever waits for its end does not wait for what a provider asks to wait, and then it is too late to ask."""
    stopping, decided = threading.Event(), threading.Event()

    def again(unsure: bool) -> bool:
        decided.set()
        return True

    with ModelServer([fault(429, "busy", retry_after="60")]) as server:
        model = spec(server)
        client = LiteLLMClient([model], stopping=stopping, environ=ENVIRON)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(client.complete, replace(model.request(SYSTEM, USER, "improve"), again=again))
            assert decided.wait(30)
            stopping.set()
            reply = asked.result(timeout=30)
        assert (reply.outcome, reply.retries, server.books.calls) == (Outcome.FAILED, 0, 1)
        assert "busy" in reply.reason
        with pytest.raises(CancelledError):
            client.complete(model.request(SYSTEM, USER, "improve"))
        assert server.books.calls == 1


def test_what_must_not_be_tried_again_is_not() -> None:
    asked: list[bool] = []
    with ModelServer([fault(500), slow(), good("x")]) as server:
        model = spec(server, timeout_s=1.5)
        request = replace(
            model.request(SYSTEM, USER, "improve"), again=lambda unsure: asked.append(unsure) or not unsure
        )
        reply = LiteLLMClient([model], sleep=lambda seconds: None, environ=ENVIRON).complete(request)
        assert (reply.outcome, server.books.calls, asked) == (Outcome.FAILED, 2, [False, True])
    assert reply.unsure_tokens == request.most_prompt_tokens + 64


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def slowly(first: bytes, then: bytes) -> Iterator[bytes]:
    """For twenty seconds, and never silent for long."""
    yield first
    for _ in range(1000):
        time.sleep(0.02)
        yield then


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b"H"),
        (HEAD + b"X-Long: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (HEAD + b"\r\n", b" "),
    ],
)
def test_a_call_ends_with_its_time_whatever_drips(first: bytes, then: bytes) -> None:
    reply = ask_raw(slowly(first, then), timeout_s=0.5)
    assert (reply.outcome, reply.reason) == (Outcome.FAILED, "no answer in time")
    assert reply.unsure_tokens > 0 and reply.latency_s < 10


def test_an_end_that_the_time_brought_is_not_that_of_the_body() -> None:
    """Without a length a body ends where its connection does."""
    body = completion({"role": "assistant", "content": "fine"}).encode()
    assert ask_raw(iter([HEAD + b"\r\n" + body])).text == "fine"
    late = ask_raw(slowly(HEAD + b"\r\n" + body, b"\n"), timeout_s=0.5)
    assert (late.outcome, late.reason) == (Outcome.FAILED, "no answer in time")


def test_a_packed_answer_is_unpacked_as_far_as_a_completion_goes() -> None:
    packed = gzip.compress(completion({"role": "assistant", "content": "fine"}).encode())
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    assert ask_raw(iter([head % len(packed), packed])).text == "fine"
    bomb = gzip.compress(b" " * (40 << 20))
    assert "longer than any completion" in ask_raw(iter([head % len(bomb), bomb])).reason


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
    assert not [name for name in sent if name.startswith("x-stainless")], "nobody needs to know what machine this is"
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
