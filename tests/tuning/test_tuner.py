from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoforge.core import Parameter, ParameterSpace, Status
from evoforge.tuning import Tuner


def space_of(sizes: Mapping[str, int], *constraints: str) -> ParameterSpace:
    parameters = tuple(Parameter(name, 1, tuple(range(1, size + 1))) for name, size in sizes.items())
    return ParameterSpace(parameters, constraints)


SMALL = space_of({"A": 4, "B": 3}, "A + B <= 5")
WIDE = space_of(dict.fromkeys("ABCDEF", 8))
# 8 ** 6 combinations, of which one in about 150 is feasible.
TIGHT = space_of(dict.fromkeys("ABCDEF", 8), "A * B <= 12", "C + D == 7", "E * F >= A + B", "A < C", "D <= F")


def key(params: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(params[name] for name in sorted(params))


def drive(tuner: Tuner, objective: Callable[[Mapping[str, int]], float]) -> list[dict[str, int]]:
    """Asks and tells until the tuner has had enough."""
    asked = []
    while (params := tuner.ask()) is not None:
        asked.append(params)
        tuner.tell(params, objective(params), Status.CORRECT)
    return asked


@pytest.fixture
def studies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Optuna's, of the tuners that draw."""
    import optuna

    made: list[Any] = []
    create = optuna.create_study
    monkeypatch.setattr(optuna, "create_study", lambda **given: made.append(create(**given)) or made[-1])
    return made


def smooth(params: Mapping[str, int]) -> float:
    """A bowl with its top at 5, 3, 6, 2, 5, 3."""
    return -sum((params[name] - top) ** 2 for name, top in zip("ABCDEF", (5, 3, 6, 2, 5, 3), strict=True)) / 20


def test_few_points_are_enumerated_in_seeded_order() -> None:
    tuner = Tuner(SMALL, seed=1, trials=64)
    asked = drive(tuner, lambda p: float(p["A"]))
    assert sorted(map(key, asked)) == sorted(map(key, SMALL.points()))
    assert drive(Tuner(SMALL, seed=1, trials=64), lambda p: 0.0) == asked
    assert drive(Tuner(SMALL, seed=2, trials=64), lambda p: 0.0) != asked


def test_more_points_than_all_trials_are_not_enumerated(studies: list[Any]) -> None:
    assert len(list(SMALL.points())) == 9
    known = [({"A": 1, "B": 1}, 0.0, Status.CORRECT)]
    for tuner in (
        Tuner(SMALL, seed=0, trials=9),
        Tuner(SMALL, seed=0, trials=8, known=known),
        Tuner(SMALL, seed=0, trials=2, later=7),
        Tuner(SMALL, seed=0, trials=2, later=6, known=known),
    ):
        drive(tuner, smooth_small)
    assert not studies
    for trials, later in ((8, 0), (2, 6)):
        assert len(drive(Tuner(SMALL, seed=0, trials=trials, later=later), smooth_small)) == trials
    assert len(studies) == 2
    drive(Tuner(space_of({"A": 65}), seed=0, trials=2, later=99), lambda p: 0.0)
    assert len(studies) == 3, "64 at most"


def smooth_small(params: Mapping[str, int]) -> float:
    return float(params["A"] - params["B"])


def test_a_kernel_without_parameters_has_one_point() -> None:
    tuner = Tuner(ParameterSpace(), seed=0, trials=5)
    assert tuner.ask() == {} and tuner.ask() is None
    assert Tuner(ParameterSpace(), seed=0, trials=5, known=[({}, 0.5, Status.CORRECT)]).ask() is None


def test_inherited_points_come_first_fitted_to_the_space() -> None:
    enqueue = [{"A": 2, "B": 99, "OTHER": 4}, {"A": 4, "B": 3}, {"A": 2, "B": 1}]
    for trials in (64, 4):
        asked = drive(Tuner(SMALL, seed=3, trials=trials, enqueue=enqueue), smooth_small)
        assert asked[:2] == [{"A": 2, "B": 1}, {"A": 1, "B": 1}]
        assert len(asked) == len(set(map(key, asked)))
    asked = drive(Tuner(WIDE, seed=3, trials=4, enqueue=[dict.fromkeys("ABCDEF", 7)]), smooth)
    assert asked[0] == dict.fromkeys("ABCDEF", 7)


def test_known_points_are_not_asked_again() -> None:
    known = [
        ({"A": 4, "B": 1}, 9.0, Status.CORRECT), ({"A": 1, "B": 1}, None, Status.CRASH),
        ({"A": 2, "B": 1}, 50.0, Status.PRUNED), ({"A": 4, "B": 3}, 100.0, Status.CORRECT),
    ]  # fmt: skip
    tuner = Tuner(SMALL, seed=0, trials=64, known=known)
    asked = [key(params) for params in drive(tuner, smooth_small)]
    assert len(asked) == 6 and not {(4, 1), (1, 1), (2, 1)} & set(asked)


def test_at_least_64_distinct_feasible_points_in_a_tight_space() -> None:
    tuner = Tuner(TIGHT, seed=0, trials=70)
    asked = drive(tuner, smooth)
    assert len(set(map(key, asked))) == len(asked) == 70
    assert all(TIGHT.feasible(params) for params in asked)


def test_a_header_of_thousands_of_choices_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here only the defaults are feasible, and they are known; to look at all else once takes 40,000 checks."""
    names = [f"P{number}" for number in range(20)]
    space = space_of(dict.fromkeys(names, 100), *(f"{name} == 1" for name in names))
    checked, broken = [], ParameterSpace.broken
    monkeypatch.setattr(ParameterSpace, "broken", lambda one, values: checked.append(1) or broken(one, values))
    monkeypatch.setattr("evoforge.tuning.tuner._MOST_CHECKS", 1000)
    tuner = Tuner(space, seed=0, trials=4, known=[(space.defaults(), 1.0, Status.CORRECT)])
    assert tuner.ask() is None
    assert len(checked) < 5000, "draws of the sampler, and one that was repaired"


def test_the_sampler_itself_learns_where_the_feasible_points_are(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = 0
    original = Tuner._trial

    def counting(self: Tuner, params: Mapping[str, int] | None) -> object:
        nonlocal draws
        draws += params is None
        return original(self, params)

    monkeypatch.setattr(Tuner, "_trial", counting)
    space = space_of(dict.fromkeys("ABCDEF", 8), "A + B + C + D + E + F <= 18")
    tuner, found = Tuner(space, seed=0, trials=400), 0
    while draws < 400:
        params = tuner.ask()
        assert params is not None
        tuner.tell(params, smooth(params), Status.CORRECT)
        found += 1
    assert found >= 64


def test_the_sampler_is_told_of_every_draw_how_much_of_what_is_required_it_breaks(studies: list[Any]) -> None:
    """A wrong kernel's is none: what cannot be built at all is worse than that."""
    tuner = Tuner(TIGHT, seed=0, trials=12)
    for number in range(12):
        params = tuner.ask()
        assert params is not None
        right = number % 2 == 0
        tuner.tell(params, smooth(params) if right else None, Status.CORRECT if right else Status.WRONG)
    (study,) = studies
    told = [trial for trial in study.trials if trial.state.is_finished()]
    for trial in told:
        params = {name: position + 1 for name, position in trial.params.items()}
        assert trial.constraints == {"require": TIGHT.broken(params)}
    assert {trial.state.name for trial in told} == {"COMPLETE", "PRUNED"}
    assert sum(trial.constraints["require"] > 0 for trial in told) > 12


def test_the_sampler_knows_what_was_judged_before() -> None:
    """Slices of two trials would learn nothing else: from the same points, judged otherwise, it draws others."""
    points = [dict.fromkeys("ABCDEF", at) | {"A": 9 - at, "B": b} for at in range(1, 9) for b in (2, 7)]

    def drawn(objective: Callable[[Mapping[str, int]], float]) -> list[dict[str, int]]:
        known = [(params, objective(params), Status.CORRECT) for params in points]
        return drive(Tuner(WIDE, seed=0, trials=2, known=known), objective)

    assert drawn(lambda p: float(p["A"])) != drawn(lambda p: -float(p["A"]))


def test_it_beats_random_search_on_a_smooth_landscape() -> None:
    ours, random = [], []
    for seed in range(8):
        tuner = Tuner(WIDE, seed=seed, trials=40)
        ours.append(max(map(smooth, drive(tuner, smooth))))
        rng = np.random.default_rng(seed)
        random.append(max(smooth({name: int(rng.integers(1, 9)) for name in "ABCDEF"}) for _ in range(40)))
    assert np.mean(ours) > np.mean(random) + 0.1
    assert sum(a > b for a, b in zip(ours, random, strict=True)) >= 6


@pytest.mark.parametrize("space", [WIDE, TIGHT], ids=["wide", "tight"])
def test_same_seed_same_points(space: ParameterSpace) -> None:
    first = drive(Tuner(space, seed=5, trials=15), smooth)
    assert drive(Tuner(space, seed=5, trials=15), smooth) == first
    assert drive(Tuner(space, seed=6, trials=15), smooth) != first


def test_several_points_may_be_out_and_answers_come_in_any_order_or_never() -> None:
    for space, trials in ((SMALL, 64), (TIGHT, 12)):
        tuner = Tuner(space, seed=0, trials=trials)
        out = [params for params in (tuner.ask() for _ in range(6)) if params is not None]
        for params in out[::-1][:4]:
            tuner.tell(params, smooth_small(params), Status.CORRECT)
        rest = drive(tuner, smooth_small)
        every = [key(params) for params in out + rest]
        assert len(set(every)) == len(every) == (9 if space is SMALL else 12)


def test_failing_and_pruned_points_teach() -> None:
    tuner = Tuner(WIDE, seed=0, trials=60)
    low = 0
    for number in range(60):
        params = tuner.ask()
        assert params is not None
        if params["A"] > 4:
            tuner.tell(params, None, Status.BUILD_ERROR)
        elif params["B"] > 4:
            tuner.tell(params, 50.0, Status.PRUNED)
        else:
            tuner.tell(params, smooth(params), Status.CORRECT)
        low += number >= 30 and params["A"] <= 4
    assert low > 24


def test_a_verdict_that_was_had_for_nothing_costs_no_trial() -> None:
    tuner = Tuner(WIDE, seed=1, trials=2)
    for _ in range(5):
        point = tuner.ask()
        assert point is not None
        tuner.tell(point, 0.5, Status.CORRECT, free=True)
    assert len(drive(tuner, smooth)) == 2


def test_misuse_is_refused() -> None:
    tuner = Tuner(SMALL, seed=0, trials=3)
    with pytest.raises(ValueError, match="asked and not told yet"):
        tuner.tell({"A": 1, "B": 1}, 0.0, Status.CORRECT)
    params = tuner.ask()
    assert params is not None
    with pytest.raises(ValueError, match="must come with its objective"):
        tuner.tell(params, None, Status.CORRECT)
    tuner.tell(params, 1.0, Status.CORRECT)
    with pytest.raises(ValueError, match="asked and not told yet"):
        tuner.tell(params, 1.0, Status.CORRECT)


def test_optuna_keeps_quiet_and_its_settings_are_put_back(capfd: pytest.CaptureFixture[str]) -> None:
    import optuna

    optuna.logging.set_verbosity(logging.INFO)
    drive(Tuner(WIDE, seed=0, trials=5), smooth)
    assert optuna.logging.get_verbosity() == logging.INFO
    assert capfd.readouterr() == ("", "")


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    limit=st.integers(2, 14),
    trials=st.integers(0, 12),
    seed=st.integers(0, 2**40),
)
def test_points_are_feasible_and_never_repeat(sizes: list[int], limit: int, trials: int, seed: int) -> None:
    names = [f"P{index}" for index in range(len(sizes))]
    space = space_of(dict(zip(names, sizes, strict=True)), f"{' + '.join(names)} <= {limit}")
    points = {key(params) for params in space.points()}
    asked = drive(Tuner(space, seed=seed, trials=trials), lambda params: float(sum(params.values())))
    assert len({key(params) for params in asked}) == len(asked) <= min(trials, len(points))
    assert {key(params) for params in asked} <= points
    if len(points) <= trials:
        assert len(asked) == len(points)


def test_with_scores_the_best_of_what_is_to_try_first_and_of_draws_comes_next() -> None:
    def high(points: Sequence[Mapping[str, int]]) -> list[float]:
        return [smooth(point) for point in points]

    first = [dict.fromkeys("ABCDEF", 8), {"A": 5, "B": 3, "C": 6, "D": 2, "E": 5, "F": 4}]
    tuner = Tuner(WIDE, seed=0, trials=12, enqueue=first, scores=high)
    asked = drive(tuner, smooth)
    assert asked[0] == first[1]
    assert len(asked) == len(set(map(key, asked))) == 12, "none is asked twice"
    assert first[0] not in asked, "the worst is left for later"
    plain = drive(Tuner(WIDE, seed=0, trials=12), smooth)
    assert np.mean([smooth(point) for point in asked[1:]]) > np.mean([smooth(point) for point in plain])


def test_with_scores_few_points_come_in_their_order_and_all_of_them() -> None:
    def scores(points: Sequence[Mapping[str, int]]) -> list[float]:
        return [p["A"] + p["B"] / 8 for p in points]

    asked = drive(Tuner(SMALL, seed=1, trials=64, scores=scores), lambda p: 0.0)
    assert asked == sorted(SMALL.points(), key=lambda p: -(p["A"] + p["B"] / 8))


def test_with_scores_a_draw_that_was_not_chosen_can_come_later() -> None:
    two = space_of({"A": 10, "B": 2})
    asked = drive(Tuner(two, seed=3, trials=15, scores=lambda points: [p["A"] for p in points]), lambda p: p["A"])
    assert len(set(map(key, asked))) == 15
