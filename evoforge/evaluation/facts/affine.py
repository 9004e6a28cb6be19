"""Integers and addresses of a kernel as sums of loop variables: just enough arithmetic to see tiles.

A value is a few alternatives (``min(jt + T, N)`` has two), each Σ coefficient · symbol + constant.
Symbols are loops (``L3``), pointers (``@2``) and unknowns (``?5``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Affine", "Number", "Value"]

_MAX_ALTERNATIVES = 4
_MAX_TERMS = 32
_MAX_NUMBER = 1 << 64


@dataclass(frozen=True)
class Number:
    """A known number, and the factor of it that comes from the kernel's parameters (1: none does).

    The factor tells a tile size, which was chosen, from a dimension of the task, which was not.
    """

    value: Fraction
    chosen: Fraction = Fraction(1)

    @classmethod
    def of(cls, value: int | Fraction, *, chosen: bool = False) -> Number:
        value = Fraction(value)
        return cls(value, value if chosen and value else Fraction(1))

    def __add__(self, other: Number) -> Number:
        if not self.value or not other.value:
            return other if not self.value else self
        total = self.value + other.value
        if self.chosen == other.chosen or not total:
            return Number(total, self.chosen if total else Fraction(1))
        return Number(total, total)

    @property
    def fits(self) -> bool:
        """Whether a machine's integer could hold it, and whoever computes with it stays fast."""
        sizes = (self.value.numerator, self.value.denominator, self.chosen.numerator, self.chosen.denominator)
        return max(map(abs, sizes)) <= _MAX_NUMBER

    def __mul__(self, other: Number) -> Number:
        return Number(self.value * other.value, self.chosen * other.chosen)

    def per(self, other: Number) -> Number:
        return Number(self.value / other.value, self.chosen / other.chosen)

    def over(self, other: Number) -> Number:
        """The quotient, rounded towards zero as C does it."""
        quotient = Fraction(int(self.value / other.value))
        return Number(quotient, self.chosen / other.chosen if quotient else Fraction(1))


@dataclass(frozen=True)
class Affine:
    """Σ coefficient · symbol + const; coefficients are not zero."""

    terms: tuple[tuple[str, Number], ...] = ()
    const: Number = Number(Fraction())

    def coefficient(self, symbol: str) -> Number | None:
        return next((c for name, c in self.terms if name == symbol), None)

    def plus(self, other: Affine, factor: Number) -> Affine:
        sums = dict(self.terms)
        for name, coefficient in other.terms:
            sums[name] = sums.get(name, Number(Fraction())) + factor * coefficient
        terms = tuple(sorted(((name, c) for name, c in sums.items() if c.value), key=lambda term: term[0]))
        return Affine(terms, self.const + factor * other.const)


@dataclass(frozen=True)
class Value:
    """What an expression may be; always at least one alternative."""

    alternatives: tuple[Affine, ...]

    @classmethod
    def of(cls, number: int | Fraction | Number) -> Value:
        return cls((Affine((), number if isinstance(number, Number) else Number.of(number)),))

    @classmethod
    def symbol(cls, name: str, factor: Number | None = None) -> Value:
        return cls((Affine(((name, factor or Number.of(1)),)),))

    @property
    def number(self) -> Number | None:
        """The value, if it is one known number."""
        only = self.alternatives[0]
        return only.const if len(self.alternatives) == 1 and not only.terms else None

    @property
    def symbols(self) -> set[str]:
        return {name for affine in self.alternatives for name, _ in affine.terms}

    @property
    def is_pointer(self) -> bool:
        return any(symbol[0] == "@" for symbol in self.symbols)

    @property
    def fits(self) -> bool:
        """Whether its numbers are a machine's and it is a sum that an address could be."""
        return all(
            len(affine.terms) <= _MAX_TERMS and affine.const.fits and all(c.fits for _, c in affine.terms)
            for affine in self.alternatives
        )

    def numbers(self) -> Iterator[Number]:
        """The alternatives that are numbers."""
        return (affine.const for affine in self.alternatives if not affine.terms)

    def or_else(self, other: Value) -> Value:
        return Value(tuple(dict.fromkeys(self.alternatives + other.alternatives))[:_MAX_ALTERNATIVES])

    def plus(self, other: Value, sign: int = 1) -> Value:
        return self._each(other, lambda a, b: a.plus(b, Number.of(sign)))

    def times(self, other: Value) -> Value | None:
        """None if neither side is a number."""
        for one, two in ((self, other), (other, self)):
            factor = one.number
            if factor is not None:
                return Value(tuple(Affine().plus(affine, factor) for affine in two.alternatives))
        return None

    def _each(self, other: Value, combine: Callable[[Affine, Affine], Affine]) -> Value:
        found = [combine(a, b) for a in self.alternatives for b in other.alternatives]
        return Value(tuple(dict.fromkeys(found))[:_MAX_ALTERNATIVES])
