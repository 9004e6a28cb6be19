from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from evoforge.campaign._claims import claim_of
from evoforge.core import Block, Elite, Evaluation, Kind, Status, WorkloadTiming

ROW: Any = SimpleNamespace(
    config={}, setup={"baseline": {"default": "compiled"}, "baseline_ms": {"default": {"eager": 4.0, "compiled": 2.0}}}
)


@pytest.mark.parametrize(("baseline", "sides"), [("compiled", (4.0, 2.0)), ("frozen", (None, None))])
def test_beside_packed_weights_nobody_knows_how_far_the_others_are(
    baseline: str, sides: tuple[float | None, float | None]
) -> None:
    block = Block(0, 1.0, compiled_ms=2.0, frozen_ms=2.0)
    own = Evaluation(
        "k", {}, "task", "cpu", Status.CORRECT, Kind.CONFIRM, timings=(WorkloadTiming("default", baseline, (block,)),)
    )
    claim = claim_of(ROW, cast(Elite, SimpleNamespace(objective=1.0, lower=0.9)), [own])
    assert (claim.speedup_eager, claim.speedup_compiled) == sides
    assert claim.over_baseline[1] == 2.0
