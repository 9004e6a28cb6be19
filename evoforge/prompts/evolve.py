"""Children of meta-prompts that no model has to write: other weights, other sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from evoforge.core import MetaPrompt, Strategy
from evoforge.errors import UsageError
from evoforge.prompts.files import OPERATORS
from evoforge.prompts.pool import PromptPool

__all__ = ["LEAST", "MOST", "Vocabulary", "breed", "cross_sections", "mutate_strategy"]

LEAST, MOST = 0.1, 10.0
"""What a weight may become; no decision is ever forced or forbidden by evolution."""

_CHANGES = 4  # at most so many weights move at a time
_STEP = 0.7  # standard deviation of a move, in octaves
_NEW = 0.25  # of the moves, so many are of a key that was not named before
_CROSSED = 0.5  # of the children, so many have two parents
_TABLES = ("operators", "stress", "priors")


@dataclass(frozen=True)
class Vocabulary:
    """The keys that a strategy may name. Priors are the schedule space's; it is asked for them."""

    operators: frozenset[str] = frozenset(OPERATORS)
    stress: frozenset[str] = frozenset()
    priors: frozenset[str] = frozenset()

    @classmethod
    def of(cls, prompts: Iterable[MetaPrompt]) -> Vocabulary:
        """Every key that some prompt names, and every operator."""
        seen = list(prompts)
        stress = frozenset(key for prompt in seen for key in prompt.strategy.stress)
        priors = frozenset(key for prompt in seen for key in prompt.strategy.priors)
        return cls(frozenset(OPERATORS), stress, priors)

    def knows(self, table: str, key: str) -> bool:
        """Whether `key` may stand in `table`."""
        return table in _TABLES and key in getattr(self, table)


def breed(
    pool: PromptPool, rng: np.random.Generator, *, vocabulary: Vocabulary | None = None, usd_per_s: float = 1e-4
) -> MetaPrompt:
    """A child of the pool's worthier prompts, added to the pool: half of them of two parents.

    The same pool, credits and `rng` give the same child. Follow it with `PromptPool.shrink`.
    """
    first, partner = pool.parents(rng, usd_per_s=usd_per_s)
    known = vocabulary or Vocabulary.of(pool)
    version = pool.next_version(first.name)
    if partner is not None and rng.random() < _CROSSED:
        child = cross_sections(first, partner, rng, version)
        child = _with(child, _mutated(child.strategy, rng, known, 1), child.parents)
    else:
        child = mutate_strategy(first, rng, version, vocabulary=known)
    pool.add(child)
    return child


def mutate_strategy(
    prompt: MetaPrompt, rng: np.random.Generator, version: int, *, vocabulary: Vocabulary | None = None
) -> MetaPrompt:
    """A child with one to four other weights, each moved by a random factor within [0.1, 10].

    A quarter of the moves are of keys of `vocabulary` (default: the prompt's own keys and every
    operator) that it did not name. Weights of zero, which a person wrote, stay zero. Sections stay.
    """
    known = vocabulary or Vocabulary.of([prompt])
    strategy = _mutated(prompt.strategy, rng, known, int(rng.integers(1, _CHANGES + 1)))
    return MetaPrompt(prompt.name, version, prompt.language, strategy, prompt.sections, (prompt.ref,))


def cross_sections(a: MetaPrompt, b: MetaPrompt, rng: np.random.Generator, version: int) -> MetaPrompt:
    """A child of `a`'s name whose sections and strategy tables come from either parent, each as a whole.

    At least one part comes from each parent where they differ. Sections that only one has come or
    stay away with even chances, unless every meta-prompt must have them; the order is `a`'s, then `b`'s.

    Raises:
        UsageError: the languages differ.
    """
    if a.language != b.language:
        raise UsageError(
            f"expected meta-prompts of one language, got {a.ref} ({a.language}) and {b.ref} ({b.language})"
        )
    parts = {f"## {name}": (a.sections.get(name), b.sections.get(name)) for name in (*a.sections, *b.sections)}
    parts |= {name: (getattr(a.strategy, name), getattr(b.strategy, name)) for name in _TABLES}
    from_b = {name: bool(rng.random() < 0.5) for name in parts}
    differing = [name for name, (left, right) in parts.items() if left != right]
    if differing and len({from_b[name] for name in differing}) == 1 and len(differing) > 1:
        flipped = differing[int(rng.integers(len(differing)))]
        from_b[flipped] = not from_b[flipped]
    taken = {name: pair[from_b[name]] for name, pair in parts.items()}
    sections = {name[3:]: str(text) for name, text in taken.items() if name.startswith("## ") and text is not None}
    tables = {name: {**_table(taken[name]), **_forbidden(a, b, name)} for name in _TABLES}
    return MetaPrompt(a.name, version, a.language, Strategy(**tables), sections, (a.ref, b.ref))


def _forbidden(a: MetaPrompt, b: MetaPrompt, table: str) -> dict[str, float]:
    """The weights of zero that a person gave either parent: they hold for all descendants."""
    return {key: 0.0 for one in (a, b) for key, weight in getattr(one.strategy, table).items() if weight == 0}


def _table(value: object) -> Mapping[str, float]:
    assert isinstance(value, Mapping)
    return value


def _mutated(strategy: Strategy, rng: np.random.Generator, known: Vocabulary, moves: int) -> Strategy:
    tables = {name: dict(getattr(strategy, name)) for name in _TABLES}
    for _ in range(moves):
        named = [(name, key) for name in _TABLES for key in sorted(tables[name]) if tables[name][key] > 0]
        fresh = [(name, key) for name in _TABLES for key in sorted(getattr(known, name)) if key not in tables[name]]
        pick = fresh if fresh and (not named or rng.random() < _NEW) else named
        if not pick:
            break
        table, key = pick[int(rng.integers(len(pick)))]
        factor = 2.0 ** float(rng.normal(0.0, _STEP))
        # Three digits read well in a file, and read back the same.
        tables[table][key] = float(f"{min(max(tables[table].get(key, 1.0) * factor, LEAST), MOST):.3g}")
    return Strategy(**tables)


def _with(prompt: MetaPrompt, strategy: Strategy, parents: tuple[str, ...]) -> MetaPrompt:
    return MetaPrompt(prompt.name, prompt.version, prompt.language, strategy, prompt.sections, parents)
