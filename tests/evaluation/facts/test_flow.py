from __future__ import annotations

import pytest

from evoforge.evaluation.facts.flow import find_loops


@pytest.mark.parametrize(
    ("following", "loops"),
    [
        ([[1], [2], []], []),
        ([[1], [1, 2], []], [{1}]),
        ([[1], [2], [2, 3], [1, 4], []], [{1, 2, 3}, {2}]),
        ([[1], [2, 3], [1], [1, 4], []], [{1, 2, 3}]),  # continue: two ways back, one loop
        ([[1], [1, 2], [1, 3], []], [{1, 2}, {1}]),  # a nest rotated into one header
        ([[1, 2], [2, 3], [1], []], [{1, 2}]),  # entered by two blocks
        ([[1, 2], [2], [1, 3], [1, 4], []], [{1, 2, 3}]),
        ([[1], [2, 3], [3], [2, 4], [1, 5], []], [{1, 2, 3, 4}, {2, 3}]),  # the inner one is irreducible
        ([[0, 1], []], [{0}]),
    ],
)
def test_loops_of_small_graphs(following: list[list[int]], loops: list[set[int]]) -> None:
    assert {frozenset(loop) for loop in find_loops(following)} == {frozenset(loop) for loop in loops}


def test_a_deep_nest() -> None:
    depth = 60
    following = [[block + 1] for block in range(depth)] + [[depth, depth + 1]]
    following += [[depth - 1 - k, depth + 2 + k] for k in range(depth - 1)] + [[]]
    assert max(sum(block in loop for loop in find_loops(following)) for block in range(len(following))) == depth
