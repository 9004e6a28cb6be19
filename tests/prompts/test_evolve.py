from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.core import Strategy
from evoforge.errors import UsageError
from evoforge.prompts import (
    PromptPool,
    Vocabulary,
    breed,
    cross_sections,
    format_meta_prompt,
    mutate_strategy,
    parse_meta_prompt,
    prompt_distance,
)

SEEDS = [prompt for language in ("cpp", "triton", "cuda") for prompt in PromptPool.default(language)]
seeds = st.sampled_from(SEEDS)


def tables(strategy: Strategy) -> dict[str, float]:
    return {
        f"{name}.{key}": weight
        for name in ("operators", "stress", "priors")
        for key, weight in getattr(strategy, name).items()
    }


@given(seeds, st.integers(0, 10**6))
def test_a_mutant_reads_back_and_moves_few_weights_within_bounds(seed, number: int) -> None:  # type: ignore[no-untyped-def]
    child = mutate_strategy(seed, np.random.default_rng(number), 7)
    assert parse_meta_prompt(format_meta_prompt(child)) == child
    assert (child.ref, child.parents, child.sections) == (f"{seed.name}@7", (seed.ref,), seed.sections)
    before, after = tables(seed.strategy), tables(child.strategy)
    changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
    assert 1 <= len(changed) <= 4
    assert all(0.1 <= after[key] <= 10 for key in changed)
    assert child == mutate_strategy(seed, np.random.default_rng(number), 7)


def test_what_a_person_forbade_stays_forbidden(make: SimpleNamespace) -> None:
    seed = replace(make.meta_prompt(), strategy=Strategy({"aim": 0.0, "sample": 1.0}))
    for number in range(50):
        assert mutate_strategy(seed, np.random.default_rng(number), 2).strategy.operators["aim"] == 0.0


def test_new_keys_come_from_the_vocabulary(make: SimpleNamespace) -> None:
    known = Vocabulary(priors=frozenset({"stream=stream", "TILE=8"}))
    found = set()
    for number in range(200):
        child = mutate_strategy(make.meta_prompt(), np.random.default_rng(number), 2, vocabulary=known)
        found |= set(child.strategy.priors)
        assert set(child.strategy.stress) == {"memory=3"}
    assert found == {"unroll=many", "stream=stream", "TILE=8"}


@given(seeds, seeds, st.integers(0, 10**6))
def test_a_cross_has_whole_parts_of_either_parent(a, b, number: int) -> None:  # type: ignore[no-untyped-def]
    if a.language != b.language:
        with pytest.raises(UsageError, match="one language"):
            cross_sections(a, b, np.random.default_rng(number), 3)
        return
    child = cross_sections(a, b, np.random.default_rng(number), 3)
    assert parse_meta_prompt(format_meta_prompt(child)) == child
    assert child.parents == (a.ref, b.ref) and child.name == a.name and list(child.sections) == list(a.sections)
    assert all(text in (a.sections[name], b.sections[name]) for name, text in child.sections.items())
    assert child.strategy.priors in (a.strategy.priors, b.strategy.priors)
    if a != b:
        assert (child.sections, child.strategy) not in ((a.sections, a.strategy), (b.sections, b.strategy))


def test_what_either_parent_forbids_a_cross_forbids(make: SimpleNamespace) -> None:
    free = make.meta_prompt()
    tables = replace(free.strategy, operators={**free.strategy.operators, "aim": 0.0})
    for pair in ((replace(free, strategy=tables), free), (free, replace(free, strategy=tables))):
        for number in range(20):
            child = cross_sections(*pair, np.random.default_rng(number), 3)
            assert child.strategy.operators["aim"] == 0


@pytest.mark.parametrize("language", ["cpp", "triton", "cuda"])
def test_generations_stay_readable_bounded_and_diverse(language: str) -> None:
    pool = PromptPool.default(language)
    rng = np.random.default_rng(3)
    for turn in range(60):
        child = breed(pool, rng)
        assert child.ref in pool and parse_meta_prompt(format_meta_prompt(child)) == child
        for prompt in pool.active():
            pool.credit(
                prompt.ref, gain=float(rng.random()) * (1 + len(prompt.name) % 3), cost_s=1.0, valid=turn % 3 > 0
            )
        pool.shrink()
        assert len(pool.active()) <= 8
        assert all(0.1 <= weight <= 10 for weight in tables(child.strategy).values())
    assert len({prompt.name for prompt in pool.active()}) >= 4
    again = PromptPool.default(language)
    assert breed(again, np.random.default_rng(3)) == breed(PromptPool.default(language), np.random.default_rng(3))


@given(seeds, seeds)
def test_distance_is_a_symmetric_share(a, b) -> None:  # type: ignore[no-untyped-def]
    gap = prompt_distance(a, b)
    assert 0 <= gap <= 1 and gap == prompt_distance(b, a) and prompt_distance(a, a) == 0
    assert a == b or a.language != b.language or gap > 0.2
