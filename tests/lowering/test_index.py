"""Index arithmetic is exact at every point, and clean where it can be."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evoforge.lowering.index import add, affine, axis, bounds, const, floordiv, mod, offset, scale, substitute
from evoforge.lowering.ir import Affine, Const, FloorDiv, Guard, Load, Mod

NAMES = ("a", "b", "c")


def value(a: Affine, at: dict[str, int]) -> int:
    total = a.const
    for factor, atom in a.terms:
        if isinstance(atom, str):
            part = at[atom]
        elif isinstance(atom, FloorDiv):
            part = value(atom.arg, at) // atom.by
        else:
            assert isinstance(atom, Mod)
            part = value(atom.arg, at) % atom.by
        total += factor * part
    return total


def raw(depth: int) -> Any:
    """Unsimplified index forms, quotients and remainders nested up to `depth`."""
    leaf = st.sampled_from(NAMES)
    if depth:
        inner = raw(depth - 1)
        by = st.integers(1, 12)
        leaf = st.one_of(leaf, st.builds(FloorDiv, inner, by), st.builds(Mod, inner, by))
    terms = st.lists(st.tuples(st.integers(-12, 12), leaf), max_size=3)
    return st.builds(affine, terms, st.integers(-20, 20))


EXTENTS = st.fixed_dictionaries({name: st.integers(1, 12) for name in NAMES})


@settings(max_examples=400, deadline=None)
@given(raw(2), EXTENTS, st.data())
def test_simplified_index_equals_original(form: Affine, extents: dict[str, int], data: st.DataObject) -> None:
    at = {name: data.draw(st.integers(0, extents[name] - 1)) for name in NAMES}
    simple = substitute(form, {}, extents)
    assert value(simple, at) == value(form, at)
    low, high = bounds(simple, extents)
    assert low <= value(simple, at) <= high


@settings(max_examples=200, deadline=None)
@given(raw(1), raw(1), st.integers(1, 12), EXTENTS, st.data())
def test_substitution_commutes_with_evaluation(
    form: Affine, inner: Affine, by: int, extents: dict[str, int], data: st.DataObject
) -> None:
    at = {name: data.draw(st.integers(0, extents[name] - 1)) for name in NAMES}
    moved = substitute(form, {"a": inner}, extents)
    assert value(moved, at) == value(form, at | {"a": value(inner, at)})
    assert value(floordiv(inner, by, extents), at) == value(inner, at) // by
    assert value(mod(inner, by, extents), at) == value(inner, at) % by


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_a_flattened_contiguous_tensor_is_read_at_its_position(shape: list[int]) -> None:
    steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    total = math.prod(shape)
    extents = {"j": total}
    index = [mod(floordiv(axis("j"), step, extents), size, extents) for step, size in zip(steps, shape, strict=True)]
    expected = axis("j") if total > 1 else const(0)
    assert substitute(offset(index, steps, extents), {}, extents) == expected


def test_a_split_reads_back_its_parts() -> None:
    extents = {"g": 2, "c": 3, "h": 5, "w": 7}
    flat = add(scale(axis("g"), 105), scale(axis("c"), 35), scale(axis("h"), 7), axis("w"))
    assert floordiv(flat, 35, extents) == add(scale(axis("g"), 3), axis("c"))
    assert mod(floordiv(flat, 7, extents), 5, extents) == axis("h")
    assert mod(flat, 7, extents) == axis("w")


def test_guards_that_always_hold_are_dropped_and_others_stay() -> None:
    inside, outside = Guard(axis("a")), Guard(add(axis("a"), const(-1)))
    load = Load("in0", (axis("a"),), (inside, outside), 0.0)
    assert substitute(load, {}, {"a": 4}).guards == (outside,)
    assert substitute(Const(1.0, "f32"), {}, {}) == Const(1.0, "f32")
