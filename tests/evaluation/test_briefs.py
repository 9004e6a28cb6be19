from __future__ import annotations

import numpy as np
import pytest

from evoforge.evaluation import briefs
from evoforge.evaluation.briefs import Briefs
from evoforge.evaluation.timing import Brief, Stopwatch


class Calls:
    """Calls of one length in long batches and of another in a brief one of eight."""

    most = 1 << 20
    busy_s = float("inf")

    def __init__(self, call_s: float, brief_s: float) -> None:
        self._call_s = call_s
        self._brief = Brief(8, 8 * brief_s + 350e-6, 0)

    def brief(self, *, again: bool = False) -> Brief:
        return self._brief

    def batch(self, n: int, expected_s: float) -> float:
        return n * self._call_s

    def empty(self, *, again: bool = False) -> float:
        return 0.0


def process(call_s: float, brief_s: float) -> list[Stopwatch]:
    watch = Stopwatch(Calls(call_s, brief_s), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    return [watch]


def booked(processes: list[tuple[float, float]], *, threads: bool) -> Briefs:
    found = Briefs(threads=threads)
    for one in processes:
        found.add(process(*one))
    return found


EVEN, SLOW, DISTURBED, CHEAT = (1e-3, 1e-3), (2e-3, 1e-3), (1e-3, 4e-3), (0.25e-3, 1e-3)


@pytest.mark.parametrize(
    ("threads", "prioritised", "processes", "refused"),
    [
        (True, False, [EVEN] * 2 + [DISTURBED] * 12, False),
        (True, False, [EVEN] + [DISTURBED] * 24, True),
        (True, True, [EVEN] * 2 + [DISTURBED] * 12, True),
        (True, True, [EVEN] + [SLOW] + [DISTURBED] * 12, False),
        (False, True, [EVEN] + [SLOW] + [DISTURBED] * 23, True),
        (True, True, [SLOW] * 4 + [CHEAT] * 21, True),
    ],
    ids=["no priority", "one only", "even", "uneven", "without threads", "a cheat that is uneven"],
)
def test_two_processes_clear_threads_that_take_long_to_part(
    monkeypatch: pytest.MonkeyPatch,
    threads: bool,
    prioritised: bool,
    processes: list[tuple[float, float]],
    refused: bool,
) -> None:
    monkeypatch.setattr(briefs, "can_prioritise", lambda: prioritised)
    found = booked(processes, threads=threads)
    assert bool(found.reason) == refused
    if not refused:
        assert not found.undecided


def test_a_suspect_is_asked_again_and_one_that_stays_suspect_is_refused_in_the_end() -> None:
    assert not booked([EVEN], threads=False).undecided
    assert booked([CHEAT], threads=False).undecided
    found = booked([CHEAT] * 25, threads=False)
    assert not found.undecided
    assert "takes 4 times as long" in found.reason


def test_one_honest_process_does_not_clear_who_was_suspect_before() -> None:
    found = Briefs(threads=False, suspect=True)
    for _ in range(9):
        assert found.undecided
        found.add(process(*EVEN))
    assert not found.undecided and not found.reason
