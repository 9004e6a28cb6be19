import numpy as np

from evoforge.emitters import Ranker

RNG = np.random.default_rng(3)
EFFECT = {("stream", "on"): 0.4, ("tile", "2"): -0.3, ("fetch", "next"): 0.2}


def _height(genome: dict[str, str], noise: float = 0.1) -> float:
    return sum(EFFECT.get(item, 0.0) for item in genome.items()) + float(RNG.normal(0, noise))


def test_what_helped_apart_is_ranked_first_together() -> None:
    seen = [{}, {"stream": "on"}, {"fetch": "next"}, {"tile": "2"}, {"tile": "2", "stream": "on"}]
    ranker = Ranker.fit([(genome, _height(genome)) for genome in seen for _ in range(6)])
    both = {"stream": "on", "fetch": "next"}
    assert ranker.score(both) > max(ranker.score(genome) for genome in seen)
    assert abs(ranker.score(both) - 0.6) < 0.25


def test_what_was_never_tried_gets_a_chance_and_what_is_known_to_hurt_does_not() -> None:
    ranker = Ranker.fit([({}, 0.0)] * 9 + [({"tile": "2"}, -0.3)] * 9)
    assert ranker.score({"stream": "on"}) > ranker.score({}) > ranker.score({"tile": "2"})


def test_slow_kernels_say_little_about_fast_ones() -> None:
    """Beside a scalar kernel that is limited by arithmetic, streaming looks useless."""
    slow = [({"vector": "no", "stream": "on"}, -3.0), ({"vector": "no"}, -3.0)] * 8
    fast = [({"stream": "on"}, 0.4), ({}, 0.0)] * 3
    ranker = Ranker.fit(slow + fast)
    assert ranker.score({"stream": "on"}) - ranker.score({}) > 0.25


def test_nothing_measured_scores_what_is_unknown_alone() -> None:
    ranker = Ranker.fit([])
    assert ranker.score({}) == 0.0
    assert ranker.score({"a": 1, "b": 2}) > ranker.score({"a": 1}) > 0.0


def test_taken_at_their_word_slow_kernels_say_what_is_hopeless_and_not_what_was_tried_beside_it() -> None:
    slow = [({"vector": "no", "tile": tile, "rows": rows}, -4.0) for tile in "123" for rows in "12"]
    rows = [*slow, ({"rows": "1"}, 0.1), ({}, 0.0), ({"stream": "on"}, 0.3)]
    blunt = Ranker.fit(rows, blunt=True)
    assert blunt.expected({"vector": "no", "tile": "1", "stream": "on"}) < -3.0
    assert Ranker.fit(rows).expected({"vector": "no"}) > -3.0
    assert min(blunt.expected(genome) for genome in ({"tile": "3"}, {"rows": "2"}, {"tile": "1", "rows": "2"})) > -1.5
    assert blunt.expected({"vector": "no", "never": "tried"}) == blunt.expected({"vector": "no"})
    assert Ranker.fit([*rows, *[({"vector": "no"}, -0.5)] * 6], blunt=True).expected({"vector": "no"}) > -2.0


def test_what_is_known_before_anything_was_measured_counts_until_measurements_refute_it() -> None:
    known = [({"vector": "no"}, -4.0)]
    rows = [({"tile": "1"}, 0.2), ({}, 0.4)]
    assert Ranker.fit(rows, blunt=True, known=known).expected({"vector": "no"}) < -2.0
    assert Ranker.fit(rows, blunt=True, known=known).expected({"tile": "1"}) > -0.5
    assert Ranker.fit(rows, blunt=True).expected({"vector": "no"}) > -0.5
    refuted = [*rows, *[({"vector": "no"}, 0.1)] * 6]
    assert Ranker.fit(refuted, blunt=True, known=known).expected({"vector": "no"}) > -2.0
    assert Ranker.fit([], blunt=True, known=known).expected({}) == 0.0
