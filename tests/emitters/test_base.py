from __future__ import annotations

from typing import Any

import pytest

from evoforge.core import Status
from evoforge.emitters import Emitter, generator_emitters


def test_costs_and_gains_are_never_negative(outcome_of: Any) -> None:
    for wrong in ({"gain": -0.1}, {"cost_s": -1.0}, {"cost_usd": float("nan")}):
        with pytest.raises(ValueError, match="zero or more"):
            outcome_of(0, **wrong)


def test_an_outcome_is_valid_when_any_trial_computed_the_right_thing(outcome_of: Any) -> None:
    assert outcome_of(0, status=Status.PRUNED).valid
    assert not outcome_of(0, status=Status.DUPLICATE).valid


def test_generators_keep_the_emitter_protocol() -> None:
    assert all(isinstance(emitter, Emitter) for emitter in generator_emitters())
