"""Who stands where among kernels that were raced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.archives import fold_confirmations, raced
from evoforge.core import Block, Elite, Evaluation, Kind, Status, WorkloadTiming


def claim(name: str, objective: float, width: float = 0.1) -> Elite:
    return Elite(name, {"T": 4}, (1, 2, 3), objective, objective - width)


def raced_in(times: Mapping[str, Sequence[float]]) -> list[Evaluation]:
    """One race: log2 milliseconds of each kernel, round by round."""
    ran = {"race": [[name, {"T": 4}] for name in times]}
    return [
        Evaluation(
            name, {"T": 4}, "task", "target", Status.CORRECT, Kind.RACE, facts=ran,
            timings=(WorkloadTiming("w", "eager", tuple(Block(at, 2.0**ms) for at, ms in enumerate(row))),),
        )
        for name, row in times.items()
    ]  # fmt: skip


def told(claims: Sequence[Elite]) -> dict[str, float]:
    return {one.candidate: one.objective for one in claims}


def test_a_race_decides_the_order_and_leaves_the_level() -> None:
    claims = [claim("lucky", 0.9, 0.05), claim("best", 0.6, 0.15), claim("far", 0.1)]
    rows = raced_in({"lucky": [1.2] * 4, "best": [1.0] * 4})
    apart = raced(claims, rows)
    assert told(apart) == pytest.approx({"lucky": 0.65, "best": 0.85, "far": 0.1})
    assert [one.lower for one in apart] == pytest.approx([0.55, 0.75, 0.0])
    assert raced(claims, reversed(rows)) == apart


def test_only_rounds_that_both_ran_are_compared() -> None:
    """A storm in rounds that one of them had left tells nothing about it, nor does one in a round of five."""
    stormy = [1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    apart = raced([claim("a", 0.5), claim("b", 0.5)], raced_in({"a": stormy, "b": [1.25, 1.25, 1.25, 1.25, 9.0]}))
    assert told(apart) == pytest.approx({"a": 0.625, "b": 0.375})


def test_who_ran_to_the_end_wins() -> None:
    """Of one that dropped out after a few rounds, a later and luckier rival does not make the winner."""
    apart = raced([claim("a", 0.5), claim("b", 0.5)], raced_in({"a": [1.0] * 8, "b": [0.9, 0.9, 0.9, 0.9]}))
    assert told(apart) == {"a": 0.5, "b": 0.5}


def test_the_last_race_counts_and_of_it_what_holds() -> None:
    claims = [claim("a", 0.5), claim("b", 0.5), claim("c", 0.5)]
    old, new = raced_in({"a": [2.0] * 4, "c": [1.0] * 4}), raced_in({"a": [1.0] * 4, "b": [1.5] * 4})
    assert told(raced(claims, [*old, *new])) == pytest.approx({"a": 0.75, "b": 0.25, "c": 0.5})
    assert raced(claims[1:], new) == claims[1:], "one that lost its claim leaves one, and a race of one is none"
    assert raced(claims, [*new, *(replace(one, kind=Kind.BENCH) for one in old)]) == raced(claims, new)


def test_a_second_race_of_the_same_kernels_is_another_one() -> None:
    """Kernels that ran in the first alone are not compared with those of other minutes."""
    claims = [claim("a", 0.5), claim("b", 0.5), claim("c", 0.5)]
    times = {"a": [1.0] * 4, "b": [1.5] * 4, "c": [2.0] * 4}
    late = {name: [ms + 3.0 for ms in row] for name, row in times.items()}
    again = [row for row in raced_in(late) if row.candidate != "c"]  # it could not be timed
    assert told(raced(claims, [*raced_in(times), *again])) == pytest.approx({"a": 0.75, "b": 0.25, "c": 0.5})


def test_a_kernel_that_a_race_finds_wrong_is_no_elite() -> None:
    blocks = tuple(Block(at, 1.0, eager_ms=2.0) for at in range(5))
    confirmed = [
        Evaluation(
            name, {"T": 4}, "task", "target", Status.CORRECT, Kind.CONFIRM, cell=(1, 2, 3),
            timings=(WorkloadTiming("w", "eager", blocks),),
        )
        for name in "abc"
    ]  # fmt: skip
    rows = raced_in({"a": [0.0] * 4, "b": [0.5] * 4})
    wrong = Evaluation("c", {"T": 4}, "task", "target", Status.WRONG, Kind.RACE, facts=rows[0].facts)
    assert told(fold_confirmations([*confirmed, *rows, wrong])) == pytest.approx({"a": 1.25, "b": 0.75})


@given(st.lists(st.lists(st.integers(-9, 9), min_size=6, max_size=6), min_size=2, max_size=5), st.randoms())
def test_claims_may_come_in_any_order(times: list[list[int]], shuffler: Any) -> None:
    claims = [claim(str(at), 0.5) for at in range(len(times))]
    rows = raced_in({one.candidate: times[at] for at, one in enumerate(claims)})
    other = list(claims)
    shuffler.shuffle(other)
    assert told(raced(other, rows)) == told(raced(claims, rows))


heights = st.floats(-2, 2, allow_nan=False)


@given(st.lists(st.tuples(heights, st.floats(0, 1), st.lists(heights, min_size=4, max_size=4)), min_size=2, max_size=6))
def test_the_winner_outranks_all_and_nobody_gains_on_the_whole(
    drawn: list[tuple[float, float, list[float]]],
) -> None:
    claims = [claim(str(at), objective, width) for at, (objective, width, _) in enumerate(drawn)]
    ran = sorted(claims, key=lambda one: one.rank, reverse=True)[: max(2, len(claims) // 2)]
    rows = raced_in({one.candidate: drawn[int(one.candidate)][2] for one in ran})
    apart = raced(claims, rows)
    names = {one.candidate for one in ran}
    before, after = ([one.objective for one in some if one.candidate in names] for some in (claims, apart))
    assert math.fsum(after) == pytest.approx(math.fsum(before), abs=1e-9)
    assert max(one.lower for one in apart) == pytest.approx(max(one.lower for one in apart if one.candidate in names))
