import math
from typing import Any

import pytest

from evoforge.errors import UsageError
from evoforge.llm import ModelSpec, Prices, Usage, prices_of
from evoforge.llm.litellm_import import import_litellm


@pytest.mark.parametrize(
    ("base", "local"),
    [
        (None, False),
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://127.8.9.1/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://10.0.0.7/v1", False),
        ("http://localhost.evil.example/v1", False),
        ("http://127.0.0.1.evil.example/v1", False),
        ("https://api.example.com/v1", False),
    ],
)
def test_local_is_this_machine(base: str | None, local: bool) -> None:
    assert ModelSpec("openai/some", base).local is local


def test_who_reads_the_prompts_has_a_name() -> None:
    assert ModelSpec("anthropic/some").provider == "anthropic"
    assert ModelSpec("openai/some", "https://llm.example.com:99/v1").provider == "llm.example.com"


@pytest.mark.parametrize(
    "changes",
    [
        {"model": " "},
        {"model": "openai/a\nb"},
        {"api_base": "127.0.0.1:8000"},
        {"api_base": "http://127.0.0.1@evil.example/v1"},
        {"api_key_env": "sk-a-key-itself"},
        {"api_base": "file:///etc/passwd"},
        {"usd_per_mtok_in": 1.0},
        {"usd_per_mtok_out": 1.0},
        {"usd_per_mtok_cached": 1.0},
        {"usd_per_mtok_in": -1.0, "usd_per_mtok_out": 1.0},
        {"usd_per_mtok_in": math.nan, "usd_per_mtok_out": 1.0},
        {"max_tokens": 0},
        {"timeout_s": 0},
        {"timeout_s": math.inf},
        {"temperature": 3},
    ],
)
def test_what_cannot_be_is_misuse(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ModelSpec(**{"model": "openai/some", **changes})


def test_given_prices_come_first_then_this_machine_then_the_list() -> None:
    local = "http://localhost:1/v1"
    assert prices_of(ModelSpec("openai/some", local, None, 2.0, 0.5, 8.0)) == Prices(2e-6, 0.5e-6, 8e-6)
    assert prices_of(ModelSpec("openai/gpt-4o-mini", None, None, 2.0, None, 8.0)) == Prices(2e-6, 2e-6, 8e-6)
    assert prices_of(ModelSpec("openai/some", local)) == Prices(0, 0, 0)
    listed = import_litellm().model_cost["gpt-4o-mini"]
    expected = Prices(
        listed["input_cost_per_token"], listed["cache_read_input_token_cost"], listed["output_cost_per_token"]
    )
    assert prices_of(ModelSpec("openai/gpt-4o-mini")) == prices_of(ModelSpec("gpt-4o-mini")) == expected
    assert expected.usd_in > expected.usd_cached > 0


def test_thoughts_that_cost_more_than_replies_are_listed_at_their_price(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6, "litellm_provider": "openai"}
    for name, thought, usd_out in (("thinker", 5e-6, 5e-6), ("dreamer", 1e-6, 2e-6), ("talker", None, 2e-6)):
        listed = {**entry, "output_cost_per_reasoning_token": thought}
        monkeypatch.setitem(import_litellm().model_cost, f"openai/{name}", listed)
        assert prices_of(ModelSpec(f"openai/{name}")) == Prices(1e-6, 1e-6, usd_out)


@pytest.mark.parametrize(
    "spec",
    [
        ModelSpec("openai/never-heard-of"),
        ModelSpec("openai/some", "http://10.0.0.7/v1"),
        ModelSpec("openai/gpt-4o-mini", "https://reseller.example/v1"),  # the list does not know what they take
        ModelSpec("mistral/gpt-4o-mini"),
    ],
)
def test_an_unknown_price_is_asked_for(spec: ModelSpec) -> None:
    with pytest.raises(
        UsageError,
        match=r"price of .* is not known \(is it PROVIDER/NAME\?\); add usd_per_mtok_in and usd_per_mtok_out",
    ):
        prices_of(spec)


def test_cached_tokens_are_paid_once() -> None:
    assert Prices(1.0, 0.25, 3.0).usd(Usage(10, 4, 2)) == 6 + 1 + 6


def test_the_worst_case_bounds_what_any_text_takes() -> None:
    spec = ModelSpec("openai/some", None, None, 1.0, None, 1.0, max_tokens=10)
    request = spec.request("é" * 100, "for (int i = 0; i < n; ++i) y[i] += a[i];", "x")
    assert request.most_prompt_tokens >= (200 + 41) / 2
    assert prices_of(spec).most_usd(request) == pytest.approx((request.most_prompt_tokens + 10) * 1e-6)
    assert (request.max_tokens, request.temperature) == (10, 0.7)
