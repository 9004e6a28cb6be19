"""Integers and addresses of a kernel as sums of loop variables: just enough arithmetic to see tiles.

A value is a few alternatives (``min(jt + T, N)`` has two), each Σ coefficient · symbol + constant.
Symbols are loops (``L3``), pointers (``@2``) and unknowns (``?5``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

__all__ = ["Affine", "Value"]

_MAX_ALTERNATIVES = 4


@dataclass(frozen=True)
class Affine:
    """Σ coefficient · symbol + const; coefficients are non-zero."""

    terms: tuple[tuple[str, Fraction], ...] = ()
    const: Fraction = field(default_factory=Fraction)

    def coefficient(self, symbol: str) -> Fraction:
        return next((c for name, c in self.terms if name == symbol), Fraction())

    def plus(self, other: Affine, factor: Fraction) -> Affine:
        sums = dict(self.terms)
        for name, coefficient in other.terms:
            sums[name] = sums.get(name, Fraction()) + factor * coefficient
        terms = tuple(sorted((name, c) for name, c in sums.items() if c))
        return Affine(terms, self.const + factor * other.const)

    def times(self, factor: Fraction) -> Affine:
        return Affine().plus(self, factor)


@dataclass(frozen=True)
class Value:
    """What an expression may be; always at least one alternative."""

    alternatives: tuple[Affine, ...]

    @classmethod
    def of(cls, number: int | Fraction) -> Value:
        return cls((Affine((), Fraction(number)),))

    @classmethod
    def symbol(cls, name: str) -> Value:
        return cls((Affine(((name, Fraction(1)),)),))

    @property
    def number(self) -> Fraction | None:
        """The value, if it is one known number."""
        only = self.alternatives[0]
        return only.const if len(self.alternatives) == 1 and not only.terms else None

    @property
    def symbols(self) -> set[str]:
        return {name for affine in self.alternatives for name, _ in affine.terms}

    def numbers(self) -> Iterator[Fraction]:
        """The alternatives that are numbers."""
        return (affine.const for affine in self.alternatives if not affine.terms)

    def or_else(self, other: Value) -> Value:
        return Value(tuple(dict.fromkeys(self.alternatives + other.alternatives))[:_MAX_ALTERNATIVES])

    def plus(self, other: Value, sign: int = 1) -> Value:
        return self._each(other, lambda a, b: a.plus(b, Fraction(sign)))

    def times(self, other: Value) -> Value | None:
        """None if neither side is a number."""
        for one, two in ((self, other), (other, self)):
            factor = one.number
            if factor is not None:
                return Value(tuple(affine.times(factor) for affine in two.alternatives))
        return None

    def _each(self, other: Value, combine: Callable[[Affine, Affine], Affine]) -> Value:
        found = [combine(a, b) for a in self.alternatives for b in other.alternatives]
        return Value(tuple(dict.fromkeys(found))[:_MAX_ALTERNATIVES])
