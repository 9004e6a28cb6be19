"""Kernels that are confirmed in turns."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial

from evoforge.core import Evaluation
from evoforge.evaluation.trial import Trial

__all__ = ["in_rounds"]


def in_rounds(
    trials: Sequence[Trial], sides: Sequence[str], *, processes: int, blocks: int, hot_and_cold: bool,
    sanitized: Container[int] = (),
) -> list[Iterator[tuple[int, Evaluation]]]:  # fmt: skip
    """Confirms kernels in turns: per round (which, verdict) of those that are through.

    All are verified, then there is one process of each, then another of each: what a machine does to its
    caches for seconds or minutes meets all kernels alike, and shows in the interval of each. Nothing happens
    but while a round is gone through, and they are to be gone through in order. A kernel that fails is through
    at once, the others in the last round.

    Args:
        sides: see `Judge.confirm`, as the rest.
        sanitized: which of them are called once under the sanitizers first.
    """
    left = dict(enumerate(trials))

    def turn(number: int, at: int) -> Evaluation | None:
        if number == 0:
            return left[at].prove(unseen=True, sanitized=at in sanitized)
        if number <= processes:
            left[at].sample(number - 1, blocks, sides)
            return None
        return left[at].conclude(sides if hot_and_cold else ())

    def turns(number: int) -> Iterator[tuple[int, Evaluation]]:
        for at in list(left):
            if found := left[at].attempt(partial(turn, number, at)):
                del left[at]
                yield at, found

    return [turns(number) for number in range(processes + 2)]
