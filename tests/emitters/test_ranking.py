import numpy as np
import pytest

from evoforge.emitters import Effects, Ranker

RNG = np.random.default_rng(3)


def _height(decisions: dict[str, object]) -> float:
    """Packing pays in wide blocks and costs in narrow ones; streaming pays a little."""
    packed, tile = decisions.get("contract") == "both", int(str(decisions["TILE"]))
    return (0.8 if packed else 0.2) - 0.3 * abs(np.log2(tile) - (6 if packed else 3)) + 0.1 * ("stream" in decisions)


def _drawn() -> dict[str, object]:
    decisions: dict[str, object] = {"TILE": int(2 ** RNG.integers(2, 8))}
    if RNG.random() < 0.5:
        decisions["contract"] = "both"
    if RNG.random() < 0.5:
        decisions["stream"] = "on"
    return decisions


def test_what_decisions_do_together_is_ranked_as_it_was_measured() -> None:
    """The best tile depends on the packing, so no sum of effects tells it."""
    ranker = Ranker.fit([(one, _height(one) + float(RNG.normal(0, 0.05))) for one in (_drawn() for _ in range(60))])
    tiles = [4, 8, 16, 32, 64, 128]
    for packing, best in (({"contract": "both"}, 64), ({}, 8)):
        scores = ranker.scores([{**packing, "TILE": tile} for tile in tiles])
        assert scores.shape == (6,)
        assert tiles[int(np.argmax(scores))] == best


def test_where_little_is_known_a_draft_gets_a_chance() -> None:
    rows: list[tuple[dict[str, object], float]] = [({"TILE": 8}, 0.0)] * 6
    rows += [({"TILE": 8, "a": "on"}, 0.3), ({"TILE": 128}, -0.3), ({"TILE": 128, "b": "on"}, -0.1)]
    ranker = Ranker.fit(rows)
    known, unknown = ranker.scores([{"TILE": 8}, {"TILE": 32}])
    assert abs(known) < 0.01
    assert unknown > known


def test_equal_rows_give_equal_scores_and_a_draft_is_scored_alone_as_among_others() -> None:
    rows = [(one, _height(one)) for one in (_drawn() for _ in range(20))]
    drafts = [_drawn() for _ in range(5)]
    scores = Ranker.fit(rows).scores(drafts)
    assert scores.tolist() == Ranker.fit(rows).scores(drafts).tolist()
    assert [float(Ranker.fit(rows).scores([one])[0]) for one in drafts] == pytest.approx(scores)


def test_decisions_that_were_never_measured_and_a_single_row_are_no_error() -> None:
    assert Ranker.fit([({"TILE": 8}, 0.5)]).scores([{"never": "tried", "TILE_ROWS": 3}, {}]).tolist() == [0.5, 0.5]


def test_effects_tell_what_is_hopeless_and_not_what_was_tried_beside_it() -> None:
    slow = [({"vector": "no", "tile": tile, "rows": rows}, -4.0) for tile in "123" for rows in "12"]
    rows = [*slow, ({"rows": "1"}, 0.1), ({}, 0.0), ({"stream": "on"}, 0.3)]
    effects = Effects.fit(rows)
    assert effects.expected({"vector": "no", "tile": "1", "stream": "on"}) < -3.0
    assert min(effects.expected(genome) for genome in ({"tile": "3"}, {"rows": "2"}, {"tile": "1", "rows": "2"})) > -1.5
    assert effects.expected({"vector": "no", "never": "tried"}) == effects.expected({"vector": "no"})
    assert Effects.fit([*rows, *[({"vector": "no"}, -0.5)] * 6]).expected({"vector": "no"}) > -2.0


def test_what_is_known_before_anything_was_measured_counts_until_measurements_refute_it() -> None:
    known = [({"vector": "no"}, -4.0)]
    rows = [({"tile": "1"}, 0.2), ({}, 0.4)]
    assert Effects.fit(rows, known).expected({"vector": "no"}) < -2.0
    assert Effects.fit(rows, known).expected({"tile": "1"}) > -0.5
    assert Effects.fit(rows).expected({"vector": "no"}) > -0.5
    refuted = [*rows, *[({"vector": "no"}, 0.1)] * 6]
    assert Effects.fit(refuted, known).expected({"vector": "no"}) > -2.0
    assert Effects.fit([], known).expected({}) == 0.0
