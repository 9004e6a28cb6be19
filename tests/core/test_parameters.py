import contextlib
import itertools
import re
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoforge.core import Parameter, ParameterSpace
from evoforge.errors import ParameterError

HEADER = """// evoforge: param TILE_M = 32 in {16, 32, 64, 128}
// evoforge: param UNROLL = 4 in {1, 2, 4, 8}
// evoforge: require TILE_M * UNROLL <= 256
int x;
"""


def test_header_is_read_in_order() -> None:
    space = ParameterSpace.parse(HEADER)
    assert space.parameters == (Parameter("TILE_M", 32, (16, 32, 64, 128)), Parameter("UNROLL", 4, (1, 2, 4, 8)))
    assert space.defaults() == {"TILE_M": 32, "UNROLL": 4}
    assert space.product_size() == 16
    points = list(space.points())
    assert len(points) == 13
    assert all(point["TILE_M"] * point["UNROLL"] <= 256 for point in points)


def test_feasible_wants_every_name_and_known_choices() -> None:
    space = ParameterSpace.parse(HEADER)
    assert space.feasible({"TILE_M": 16, "UNROLL": 8})
    assert not space.feasible({"TILE_M": 128, "UNROLL": 4})
    assert not space.feasible({"TILE_M": 16})
    assert not space.feasible({"TILE_M": 17, "UNROLL": 1})
    assert not space.feasible({"TILE_M": 16, "UNROLL": 1, "OTHER": 1})


def test_inherit_takes_what_fits_and_falls_back() -> None:
    space = ParameterSpace.parse(HEADER)
    assert space.inherit({"UNROLL": 8, "GONE": 3}) == {"TILE_M": 32, "UNROLL": 8}
    assert space.inherit({"TILE_M": 128}) == space.defaults()


@pytest.mark.parametrize("tail", ["}", "};", ",}", "}  // unroll", "} // one of {these}", "}# x", ", };  "])
def test_what_a_writer_of_c_adds_to_a_line_is_read(tail: str) -> None:
    space = ParameterSpace.parse(f"// evoforge: param T = 4 in {{1, 2, 4{tail}\n")
    assert space.parameters == (Parameter("T", 4, (1, 2, 4)),)


@pytest.mark.parametrize(
    ("expression", "feasible"),
    [
        ("T % 2 == 0 && T <= 8", {2, 4, 8}),
        ("T == 4 || T > 8;", {4, 16}),
        ("!(T == 4) && T != 1 || T == 4", {2, 4, 8, 16}),
        ("T / 4 == 1", {4}),
        ("T // 4 == 1", {4}),
    ],
)
def test_operators_of_c_mean_what_they_mean_there(expression: str, feasible: set[int]) -> None:
    space = ParameterSpace.parse(f"// evoforge: param T = 4 in {{1, 2, 4, 8, 16}}\n// evoforge: require {expression}\n")
    assert {point["T"] for point in space.points()} == feasible


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("// evoforge: param tile = 4 in {4}", "expected 'evoforge: param NAME"),
        ("// evoforge: param T = 5 in {4, 8}", "must be one of its choices"),
        ("// evoforge: param T = 4 in {4, x}", "integers in braces"),
        ("// evoforge: param T = 4 in {4, 4}", "repeat"),
        ("// evoforge: require __import__('os').system('true')", "expected integers"),
        ("// evoforge: require T <", "expected an expression"),
        ("// evoforge: require 1 < 2\n" * 65, "line 65: expected at most 64 require lines"),
        ("// evoforge: param T = 4 in {4}\n// evoforge: require T > 4", "defaults break"),
        ("// evoforge: param T = 4 in {4}\n// evoforge: param T = 4 in {4}", "differently named"),
        ("// evoforge: param A = 1 in {1, 2}\n// evoforge: require A == 1 or B == 2", "names B, which is not declared"),
        ("// evoforge: param A = 1 in {1, 2}\n// evoforge: require A == 2 and f() or A == 1", "got Call in"),
        ("// evoforge: require 1 or 1 << 99", "got LShift in"),
        ("// evoforge: require 1 or 9 ** 9 ** 9", "got Pow in"),
        ("// evoforge: require 1 or 1 in 2", "got In in"),
        ("// evoforge: require 1 or 0.5", "got Constant in"),
        ("// evoforge: require " + "-" * 400 + "1", "less nesting"),
        (("// evoforge: require 1" + " + 1" * 60 + "\n") * 6, "at most 1000 characters in all"),
        (f"// evoforge: param T = 1 in {{1, {2**63}}}", "must fit 64 bits"),
        (f"// evoforge: param {'T' * 65} = 1 in {{1}}", "expected 'evoforge: param NAME"),
    ],
)
def test_a_header_that_cannot_be_read_says_what_was_expected(line: str, says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        ParameterSpace.parse(line)


@given(st.dictionaries(st.sampled_from("ABCD"), st.lists(st.integers(-9, 99), min_size=1, max_size=5, unique=True)))
def test_points_are_exactly_the_feasible_combinations(table: dict[str, list[int]]) -> None:
    lines = [f"// evoforge: param {n} = {c[0]} in {{{', '.join(map(str, c))}}}" for n, c in table.items()]
    space = ParameterSpace.parse("\n".join(lines))
    points = list(space.points())
    assert len(points) == space.product_size()
    assert all(space.feasible(point) for point in points)
    assert len({tuple(point.items()) for point in points}) == len(points)


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), min_size=1, max_size=3),
    st.integers(0, 30),
    st.data(),
)
def test_nearest_moves_as_few_choices_as_any_feasible_point(
    table: list[list[int]], limit: int, data: st.DataObject
) -> None:
    parameters = [
        Parameter(f"P{at}", data.draw(st.sampled_from(choices)), tuple(choices)) for at, choices in enumerate(table)
    ]
    space = ParameterSpace(tuple(parameters), (f"{' + '.join(p.name for p in parameters)} > {limit}",))

    def distance(values: Mapping[str, int]) -> int:
        return sum(abs(p.choices.index(values[p.name]) - p.choices.index(p.default)) for p in parameters)

    found = space.nearest()
    assert found == min(space.points(), key=distance, default=None)


def test_require_knows_python_arithmetic_and_zero_division() -> None:
    space = ParameterSpace.parse(
        "// evoforge: param A = 6 in {0, 6}\n// evoforge: param B = 3 in {0, 3}\n"
        "// evoforge: require A % B == 0 and not A // B == 1 or -A < 0"
    )
    assert space.feasible({"A": 6, "B": 0})
    assert space.feasible({"A": 0, "B": 3})


@pytest.mark.parametrize(
    "line",
    [f"param X = {'9' * 5000} in {{1, 2}}", "require " + "-" * 50_000 + "1 < 5", "require " + "-" * 499 + "1"],
)
def test_a_hostile_header_is_an_error_or_read(line: str) -> None:
    with contextlib.suppress(ParameterError):
        ParameterSpace.parse(f"// evoforge: {line}\n").feasible({})


@pytest.mark.parametrize(
    "line",
    ["param T = 1 in {1 %s x}", "param T = 1 in {1} %s x", "param T = 1 in {1} ; %s x", "require 1 %s x", "T %s x"],
)
def test_blanks_without_end_are_read_in_one_go(line: str) -> None:
    """Where patterns share the blanks between them, this many take hours."""
    with contextlib.suppress(ParameterError):
        ParameterSpace.parse(f"// evoforge: {line % (' ' * 150_000)}\n")


OPERATORS = ["+", "-", "*", "/", "%", "<", "==", "!=", "&&", "||", "and", "or", "<<", "**", "in"]
EXPRESSIONS = st.recursive(
    st.sampled_from(["A", "A", "B", "D", "0", "1", "64", "0.5", "f()"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        st.tuples(st.sampled_from(["!", "not ", "-", "~"]), inner).map("".join),
    ),
    max_leaves=8,
)
VALUES = st.sampled_from([0, 1, 2, 3, -1, 64, 2**31, 2**63 - 1, 1 - 2**63, 2**63, 2**70, -(2**70)])


@settings(max_examples=500, deadline=None)
@given(
    st.dictionaries(st.sampled_from("ABC"), st.lists(VALUES, min_size=1, max_size=6, unique=True)),
    st.lists(EXPRESSIONS, max_size=2),
)
def test_a_header_that_was_read_never_fails_later(table: dict[str, list[int]], requires: list[str]) -> None:
    lines = [f"// evoforge: param {n} = {c[0]} in {{{', '.join(map(str, c))}}}" for n, c in table.items()]
    try:
        space = ParameterSpace.parse("\n".join([*lines, *(f"// evoforge: require {text}" for text in requires)]))
    except ParameterError:
        return
    for text in requires:  # what the defaults do not call for as well
        assert set(re.findall("[A-D]", text)) <= table.keys()
        assert not re.search(r"<<|\*\*|\bin\b|0\.5|f\(|~", text)
    points, rng = list(space.points()), np.random.default_rng(0)
    assert space.defaults() in points
    for values in (space.draw(rng), space.nearest(), space.inherit(points[-1])):
        assert values in points
    for values in itertools.product(*(one.choices for one in space.parameters)):
        assert space.broken(dict(zip(space.defaults(), values, strict=True))) >= 0


def test_drawn_values_are_feasible_and_the_defaults_where_hardly_any_are() -> None:
    space, rng = ParameterSpace.parse(HEADER), np.random.default_rng(0)
    drawn = [space.draw(rng) for _ in range(200)]
    assert all(map(space.feasible, drawn))
    assert len({tuple(values.items()) for values in drawn}) == 13
    many = tuple(Parameter(name, 1, tuple(range(1, 200))) for name in "ABC")
    assert ParameterSpace(many, ("A * B * C == 1",)).draw(rng) == {"A": 1, "B": 1, "C": 1}
