from __future__ import annotations

import pytest

from evoforge.lowering.linear import Linear, Number, Scope, loops_of


@pytest.fixture
def scope() -> Scope:
    found = Scope({("EVO_SIZE", "in0", 1): 96}, {"TILE": 8}, lanes=16)
    found.names |= {name: (Linear({name: Number(1)}, Number(0)),) for name in ("row", "col")}
    return found


def test_addresses_are_sums_of_loops(scope: Scope) -> None:
    (found,) = scope.values("(row + 1) * EVO_SIZE(in0, 1) + col * evo::lanes - 3")
    assert {name: number.value for name, number in found.terms.items()} == {"row": 96, "col": 16}
    assert found.const.value == 93


def test_what_parameters_gave_is_known(scope: Scope) -> None:
    (found,) = scope.values("row * TILE + col * 8")
    assert found.terms == {"row": Number(8, 8), "col": Number(8)}


def test_integers_divide_as_in_c_and_loops_on_average(scope: Scope) -> None:
    assert scope.number("(EVO_SIZE(in0, 1) + TILE * 2 - 1) / (TILE * 2)") == 6
    (found,) = scope.values("row / TILE * TILE")
    assert found.terms["row"].value == 1 and found.rough == {"row"}


def test_a_minimum_is_either_unless_both_are_known(scope: Scope) -> None:
    assert scope.values("evo::min(int64_t(TILE), EVO_SIZE(in0, 1))") == (Linear({}, Number(8, 8)),)
    assert scope.number("evo::min(TILE * 4, EVO_SIZE(in0, 1))") == 32
    assert len(scope.values("evo::min(row + TILE, EVO_SIZE(in0, 1))")) == 2


@pytest.mark.parametrize("text", ["in1[row] * 512 + col", "((in1[row] < int64_t(0)) ? (in1[row] + 9) : 3) * 512 + col"])
def test_what_is_loaded_depends_on_loops_but_is_no_sum_of_them(scope: Scope, text: str) -> None:
    (found,) = scope.values(text)
    opaque = next(name for name in found.terms if name != "col")
    assert opaque[0] == "[" and loops_of(opaque) == ["row"]
    assert found.terms[opaque].value == 512 and found.terms["col"].value == 1
