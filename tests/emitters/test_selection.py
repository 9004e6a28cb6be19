from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from evoforge.core import AddStatus, Status, Strategy
from evoforge.emitters import Selection

ROW = {(0, 0, 0): 0.0, (0, 1, 0): 0.0, (0, 2, 0): 0.0, (0, 3, 0): 0.0}


def parents(selection: Selection, view: Any, operator: str = "mutate", n: int = 2000) -> Counter[Any]:
    rng = np.random.default_rng(1)
    return Counter(selection.parent(view, operator, rng)[0] for _ in range(n))  # type: ignore[index]


def test_half_of_the_draws_are_uniform_over_elites(view_of: Any) -> None:
    view, rng = view_of(ROW), np.random.default_rng(1)
    draws = [Selection().parent(view, "mutate", rng) for _ in range(2000)]
    uniform = Counter(draw[0] for draw in draws if draw and draw[1] is None)
    assert 900 < sum(uniform.values()) < 1100
    assert all(190 < uniform[cell] < 310 for cell in ROW)


def test_a_parent_whose_children_gain_is_chosen_more_for_that_operator_only(view_of: Any, outcome_of: Any) -> None:
    view = view_of(ROW, reachable=frozenset(ROW))
    selection = Selection()
    for ticket in range(40):
        cell = list(ROW)[ticket % 4]
        good = cell == (0, 2, 0)
        selection.tell(
            outcome_of(ticket, parents=(cell,), cell=cell, gain=1.0 if good else 0.0, placement=AddStatus.IMPROVED)
        )
    chosen = parents(selection, view)
    assert chosen[0, 2, 0] > 1.6 * max(chosen[cell] for cell in ROW if cell != (0, 2, 0))
    assert selection.landings((0, 2, 0), "mutate") == {(0, 2, 0): 10}
    assert selection.landings((0, 2, 0), "cross") == {}


def test_a_parent_whose_children_reach_empty_cells_beats_one_whose_children_fail(view_of: Any, outcome_of: Any) -> None:
    view = view_of({(0, 0, 0): 0.0, (3, 3, 2): 0.0})
    selection = Selection()
    for ticket in range(20):
        selection.tell(outcome_of(ticket, parents=((0, 0, 0),), cell=(0, 0, 1)))
    for ticket in range(20, 40):
        selection.tell(outcome_of(ticket, parents=((3, 3, 2),), cell=None, status=Status.WRONG))
    chosen = parents(selection, view)
    assert chosen[0, 0, 0] > 2 * chosen[3, 3, 2]


def test_the_first_elite_of_a_cell_does_not_count_as_a_promise_of_more(view_of: Any, outcome_of: Any) -> None:
    view = view_of(ROW, reachable=frozenset(ROW))
    told, bare = Selection(), Selection()
    told.tell(outcome_of(0, cell=(0, 1, 0), gain=5.0, placement=AddStatus.NEW))
    assert parents(told, view) == parents(bare, view)


def test_a_ticket_told_twice_counts_once(outcome_of: Any) -> None:
    selection = Selection()
    for ticket in (3, 1, 3, 1, 2):
        selection.tell(outcome_of(ticket, parents=((0, 0, 0), (0, 1, 0)), cell=None, status=Status.CRASH))
    assert selection.landings((0, 0, 0), "mutate") == selection.landings((0, 1, 0), "mutate") == {None: 3}


def test_no_elite_no_parent(view_of: Any) -> None:
    assert Selection().parent(view_of({}), "mutate", np.random.default_rng(0)) is None


def targets(view: Any, strategy: Strategy = Strategy(), n: int = 3000) -> Counter[Any]:  # noqa: B008
    rng = np.random.default_rng(4)
    return Counter(Selection().target(view, strategy, rng) for _ in range(n))


def test_empty_cells_come_before_weak_ones_and_weak_before_strong(view_of: Any) -> None:
    reach = frozenset({(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0)})
    drawn = targets(view_of({(0, 0, 0): 1.0, (0, 1, 0): -1.0, (0, 2, 0): 1.0}, reachable=reach))
    assert drawn[0, 3, 0] > drawn[0, 1, 0] > drawn[0, 0, 0] > 0
    assert drawn[0, 3, 0] > 0.5 * 3000


def test_attempts_make_a_cell_give_way_and_stress_brings_it_back(view_of: Any) -> None:
    reach = frozenset({(0, 0, 0), (0, 3, 0)})
    even = targets(view_of({}, reachable=reach))
    tired = targets(view_of({}, reachable=reach, attempts={(0, 3, 0): 9}))
    stressed = targets(view_of({}, reachable=reach, attempts={(0, 3, 0): 9}), Strategy(stress={"memory=3": 10.0}))
    assert abs(even[0, 3, 0] - 1500) < 120
    assert abs(tired[0, 3, 0] - 3000 / 11) < 80
    assert abs(stressed[0, 3, 0] - 1500) < 120


def test_only_reachable_cells_are_aimed_at_and_stress_zero_excludes(view_of: Any) -> None:
    assert targets(view_of({}, reachable=frozenset())) == {None: 3000}
    reach = frozenset({(0, 0, 0), (1, 0, 0)})
    assert set(targets(view_of({}, reachable=reach), Strategy(stress={"tiling=0": 0.0}))) == {(1, 0, 0)}
    assert set(targets(view_of({(0, 0, 0): 0.0}, reachable=reach), Strategy(stress={"tiling=1": 0.0}))) == {(0, 0, 0)}


def test_an_empty_cell_beside_fast_elites_is_aimed_at_before_one_beside_slow_ones(view_of: Any) -> None:
    view = view_of({(0, 0, 0): -3.0, (3, 3, 2): 1.0}, reachable=frozenset({(0, 0, 1), (3, 3, 1)}))
    rng = np.random.default_rng(2)
    drawn = Counter(Selection().target(view, Strategy(), rng) for _ in range(400))
    assert drawn[3, 3, 1] > 5 * drawn[0, 0, 1] > 0


def test_cells_around_one_that_was_worth_nothing_give_way(view_of: Any, outcome_of: Any) -> None:
    reach = frozenset({(0, 0, 0), (0, 0, 1), (3, 3, 1)})
    view, rng = view_of({(1, 1, 0): 0.0, (3, 3, 2): 0.0}, reachable=reach), np.random.default_rng(2)
    told, bare = Selection(), Selection()
    told.tell(outcome_of(0, cell=None, status=Status.PRUNED, target=(0, 0, 0), emitter="aim"))
    after = Counter(told.target(view, Strategy(), rng) for _ in range(900))
    before = Counter(bare.target(view, Strategy(), rng) for _ in range(900))
    assert all(250 < before[cell] < 350 for cell in reach)
    assert after[3, 3, 1] > 10 * max(after[0, 0, 0], after[0, 0, 1])
