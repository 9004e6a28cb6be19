"""The archive: MAP-Elites' rule, its numbers against pyribs, and independence of order."""

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.archives import Archive
from evoforge.core import AddStatus, Elite
from evoforge.errors import UsageError

CELLS = list(itertools.product(range(4), repeat=3))


def elite(cell: tuple[int, ...] = (0, 0, 0), lower: float = 0.0, **changes: Any) -> Elite:
    return replace(Elite("a" * 64, {}, cell, lower, lower), **changes)


def test_new_improved_rejected() -> None:
    archive = Archive()
    assert archive.add(elite(lower=1.0)) is AddStatus.NEW
    assert archive.add(elite(lower=0.5)) is AddStatus.REJECTED
    assert archive.add(elite(lower=1.0)) is AddStatus.REJECTED
    assert archive.add(elite(lower=1.5, objective=1.6)) is AddStatus.IMPROVED
    assert archive.add(elite((1, 0, 0), lower=-4.0)) is AddStatus.NEW
    assert [kept.lower for kept in archive] == [1.5, -4.0]
    assert archive[0, 0, 0].objective == 1.6
    assert (1, 0, 0) in archive and (2, 0, 0) not in archive
    assert archive.get((2, 0, 0)) is None
    assert len(archive) == 2


def test_the_lower_bound_ranks_and_not_the_objective() -> None:
    archive = Archive()
    archive.add(elite(lower=1.0, objective=1.1))
    assert archive.add(elite(lower=0.9, objective=3.0)) is AddStatus.REJECTED
    archive.add(elite((3, 3, 3), lower=0.2, objective=9.0))
    best = archive.best()
    assert best is not None and best.lower == 1.0


def test_ties_go_to_the_shorter_source_then_the_lower_ticket() -> None:
    archive = Archive()
    archive.add(elite(source_length=100, ticket=5))
    assert archive.add(elite(source_length=101, ticket=1)) is AddStatus.REJECTED
    assert archive.add(elite(source_length=99, ticket=9)) is AddStatus.IMPROVED
    assert archive.add(elite(source_length=99, ticket=8)) is AddStatus.IMPROVED
    assert archive.add(elite(source_length=99, ticket=8)) is AddStatus.REJECTED


def test_coverage_counts_reachable_cells_and_a_foreign_elite_extends_them() -> None:
    mask = CELLS[:10]
    archive = Archive((4, 4, 4), mask)
    assert archive.coverage == 0.0
    archive.add(elite(CELLS[3]))
    assert archive.coverage == 1 / 10
    archive.add(elite(CELLS[40]))
    assert archive.coverage == 2 / 11
    assert archive.reachable == {*mask, CELLS[40]}
    archive.remove(CELLS[40])
    assert archive.coverage == 1 / 10
    assert Archive().reachable == set(CELLS)
    assert Archive((4, 4, 4), []).coverage == 0.0


def test_elites_come_in_cell_order() -> None:
    archive = Archive()
    for cell in reversed(CELLS):
        archive.add(elite(cell))
    assert [kept.cell for kept in archive.elites()] == CELLS
    assert archive.coverage == 1.0


def test_remove_and_rebuild() -> None:
    archive = Archive()
    archive.add(elite(lower=1.0))
    assert archive.remove((0, 0, 0)).lower == 1.0
    with pytest.raises(KeyError):
        archive.remove((0, 0, 0))
    archive.add(elite((1, 1, 1), lower=3.0))
    archive.rebuild([elite(lower=0.25), elite(lower=0.5)])
    assert [kept.lower for kept in archive] == [0.5]
    assert archive.qd_score == 5.5


def test_an_empty_archive_has_no_best() -> None:
    assert Archive().best() is None
    assert Archive().qd_score == 0.0


@pytest.mark.parametrize("cell", [(0, 0), (4, 0, 0), (-1, 0, 0), (0, 0, 0, 0)])
def test_a_cell_outside_the_shape_is_refused(cell: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="inside shape"):
        Archive().add(elite(cell))
    with pytest.raises(UsageError, match="inside shape"):
        Archive((4, 4, 4), [cell])


@pytest.mark.parametrize("field", ["objective", "lower"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_must_be_finite(field: str, value: float) -> None:
    archive = Archive()
    with pytest.raises(UsageError, match="finite"):
        archive.add(replace(elite(), **{field: value}))
    assert len(archive) == 0


@pytest.mark.parametrize("shape", [(), (4, 0)])
def test_a_shape_needs_axes_with_levels(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="at least one"):
        Archive(shape)


_ELITES = st.builds(
    Elite,
    candidate=st.sampled_from(["a" * 64, "b" * 64]),
    params=st.dictionaries(st.sampled_from(["T", "U"]), st.integers(1, 2)),
    cell=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    objective=st.floats(-6, 6),
    lower=st.sampled_from([-1.0, 0.0, 0.5]),
    source_length=st.integers(0, 1),
    ticket=st.integers(0, 1),
)


@given(st.lists(_ELITES, max_size=20).flatmap(lambda elites: st.tuples(st.just(elites), st.permutations(elites))))
def test_the_order_of_the_adds_does_not_matter(case: tuple[list[Elite], list[Elite]]) -> None:
    """Ranks here tie on purpose, down to elites that differ in parameters alone."""
    one, other = Archive((2, 2), [(0, 0)]), Archive((2, 2), [(0, 0)])
    for left, right in zip(*case, strict=True):
        one.add(left)
        other.add(right)
    assert one == other
    assert (one.qd_score, one.coverage, one.best()) == (other.qd_score, other.coverage, other.best())
    for kept in one:
        assert kept.rank == max(given_.rank for given_ in case[0] if given_.cell == kept.cell)


@given(st.lists(_ELITES, max_size=8))
def test_json_round_trip(elites: list[Elite]) -> None:
    archive = Archive((2, 2), [(0, 0), (1, 1)])
    archive.rebuild(elites)
    again = Archive.from_json(json.loads(json.dumps(archive.to_json())))
    assert again == archive
    assert again.coverage == archive.coverage


def test_equal_to_pyribs_over_100_000_adds() -> None:
    """Distinct float64 objectives, every status, then elites, coverage and QD score.

    Two thousand rounds of fifty: in none does a cell come twice, so that a batch of pyribs is as good
    as one add after the other.
    """
    ribs = pytest.importorskip("ribs.archives")
    rng = np.random.default_rng(7)
    count, each = 100_000, 50
    objectives = np.unique(rng.uniform(-5, 4, count + 1000))[:count]
    rng.shuffle(objectives)
    weights = rng.dirichlet(np.ones(len(CELLS)))  # uneven, as real searches are
    theirs = ribs.GridArchive(
        solution_dim=1, dims=(4, 4, 4), ranges=[(0, 4)] * 3, qd_score_offset=-5, solution_dtype=np.float64
    )
    ours = Archive((4, 4, 4))
    names = {0: AddStatus.REJECTED, 1: AddStatus.IMPROVED, 2: AddStatus.NEW}
    for start in range(0, count, each):
        tickets, values = range(start, start + each), objectives[start : start + each]
        cells = [CELLS[at] for at in rng.choice(len(CELLS), each, replace=False, p=weights)]
        found = [
            ours.add(Elite("a", {}, cell, value, value, ticket=ticket))
            for ticket, value, cell in zip(tickets, values.tolist(), cells, strict=True)
        ]
        info = theirs.add(np.asarray(tickets)[:, None], values, np.asarray(cells) + 0.5)
        assert found == [names[int(status)] for status in info["status"]]
        if start % 10_000 == 0:
            assert ours.coverage == theirs.stats.coverage
            assert ours.qd_score == pytest.approx(float(theirs.stats.qd_score), rel=1e-12)
    table = theirs.data(["index", "objective", "solution"])
    expected = {
        tuple(at): (objective, int(ticket))
        for at, objective, (ticket,) in zip(
            theirs.int_to_grid_index(table["index"]).tolist(), table["objective"], table["solution"], strict=True
        )
    }
    assert {kept.cell: (kept.objective, kept.ticket) for kept in ours} == expected
    assert len(ours) == 64
    assert ours.coverage == theirs.stats.coverage == 1.0
    # pyribs keeps a running sum, whose rounding depends on the order; the elites' own sum is exact.
    assert ours.qd_score == pytest.approx(float(theirs.stats.qd_score), rel=1e-12)
    assert ours.qd_score == math.fsum(objective + 5 for objective in table["objective"].tolist())
    best = ours.best()
    assert best is not None and best.objective == float(theirs.stats.obj_max)
