"""Who drops out of a race, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from evoforge.core import Block, Evaluation, Kind, Status, WorkloadTiming
from evoforge.evaluation.race import race


class Runner:
    """A trial that takes `log2_ms`, give or take `noise` and what strikes all kernels of a round."""

    def __init__(self, log2_ms: float, noise: float = 0.0, fails_at: int = -1, asked_more: int = 0) -> None:
        self.log2_ms, self.noise, self.fails_at, self.asked_more = log2_ms, noise, fails_at, asked_more
        self.rng = np.random.default_rng([int(1000 * log2_ms), 1])
        self.blocks: list[Block] = []

    def attempt(self, step: Callable[[], Any]) -> Any:
        return step()

    def prove(self) -> Evaluation | None:
        return self.verdict(Status.WRONG) if self.fails_at == 0 else None

    def sample(self, process: int, blocks: int, sides: Sequence[str]) -> Evaluation | None:
        assert not sides
        if process + 1 == self.fails_at:
            return self.verdict(Status.CRASH)
        storm = 3.0 * np.random.default_rng(process).random()
        self.blocks += [
            Block(process, 2.0 ** (self.log2_ms + storm + self.noise * self.rng.normal())) for _ in range(blocks)
        ]
        return None

    def conclude(self) -> Evaluation:
        """Of a doubted kernel more processes are asked, numbered as those that others still run."""
        for _ in range(self.asked_more):
            self.sample(self.blocks[-1].process + 1, 2, ())
        return self.verdict(Status.CORRECT)

    def verdict(self, status: Status) -> Evaluation:
        timings = (WorkloadTiming("w", "eager", tuple(self.blocks)),) if status is Status.CORRECT else ()
        return Evaluation("k", {}, "task", "target", status, Kind.RACE, timings=timings)


def rounds(runners: Sequence[Runner], limit_s: float = 1e9) -> list[int]:
    verdicts = race(cast(Any, runners), np.random.default_rng(0), limit_s=limit_s)
    return [len(found.log2_ms()) for found in verdicts]


def test_who_is_surely_slower_drops_out_and_storms_over_all_hide_nothing() -> None:
    assert rounds([Runner(0.3), Runner(0.1), Runner(0.5)]) == [4, 4, 4], "one is left after four rounds"
    ran = rounds([Runner(0.0, 0.05), Runner(0.001, 0.05), Runner(0.5, 0.05)])
    assert ran[2] == 4
    assert ran[0] == ran[1] > 4


def test_equal_kernels_run_to_the_end_or_until_the_time_is_up() -> None:
    assert rounds([Runner(0.0), Runner(0.0), Runner(0.0)]) == [32, 32, 32]
    assert rounds([Runner(0.0), Runner(0.0), Runner(0.0)], limit_s=0.0) == [1, 1, 1]


def test_the_fastest_is_seldom_lost() -> None:
    wins = 0
    for seed in range(200):
        runners = [Runner(0.02 * at, 0.08) for at in range(8)]
        for at, runner in enumerate(runners):
            runner.rng = np.random.default_rng([seed, at])
        ran = rounds(runners)
        wins += ran[0] == max(ran)
    assert wins > 170


@pytest.mark.parametrize(("at", "status"), [(0, Status.WRONG), (6, Status.CRASH)])
def test_a_kernel_that_fails_is_out_and_the_others_go_on(at: int, status: Status) -> None:
    runners: Any = [Runner(0.0), Runner(0.0, fails_at=at), Runner(0.0)]
    verdicts = race(runners, np.random.default_rng(0), limit_s=1e9)
    assert [one.status for one in verdicts] == [Status.CORRECT, status, Status.CORRECT]
    assert len(verdicts[0].log2_ms()) == 32


def test_what_was_asked_after_the_race_is_no_round_of_it() -> None:
    assert rounds([Runner(0.5, asked_more=5), Runner(0.0), Runner(0.0)]) == [4, 32, 32]
