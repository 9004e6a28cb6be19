import math
from dataclasses import replace

import pytest

from evoforge.core import Outcome
from evoforge.testing.store_suite import a_call


def test_a_call_keeps_what_was_said() -> None:
    call = a_call(outcome=Outcome.TRUNCATED)
    assert call.outcome == "TRUNCATED"
    assert replace(call) == call


@pytest.mark.parametrize("name", ["usd", "latency_s", "prompt_tokens", "completion_tokens", "retries", "unsure_usd"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_numbers_are_zero_or_more(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"call's {name} must be zero or more"):
        a_call(**{name: value})


def test_cached_tokens_are_among_the_prompts() -> None:
    with pytest.raises(ValueError, match="at most its 10 prompt tokens cached, got 11"):
        a_call(prompt_tokens=10, cached_tokens=11)
