from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.errors import ReplyError
from evoforge.prompts import Edit, apply_edits, find_edits, render_edits
from evoforge.prompts.edits import is_marker

TEXT = "def run(a):\n    for i in a:\n        b = i\n        c = b\n    return a\n"
lines = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12), max_size=4)


def edit(search: str, replace: str) -> Edit:
    return Edit(tuple(search.split("\n")), tuple(replace.split("\n")))


@given(st.lists(st.builds(Edit, lines.map(tuple), lines.map(tuple)), max_size=5))
def test_edits_that_are_written_are_found_again(edits: list[Edit]) -> None:
    try:
        text = render_edits(edits)
    except ValueError:
        return
    assert find_edits(text.split("\n"))[0] == edits


def test_a_mark_inside_an_edit_is_not_written() -> None:
    for mark in ("=======", "<<<<<<< SEARCH", ">>>>>>> REPLACE"):
        with pytest.raises(ValueError, match="marks"):
            render_edits([Edit(("a",), (mark,))])


@given(st.lists(st.sampled_from(["a", "b", "  a", "", "c d"]), min_size=1, max_size=8), st.data())
def test_an_exact_edit_replaces_exactly_its_place(text: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    made = Edit(tuple(text[start:end]), ("new",))
    before = "\n".join(text)
    with contextlib.suppress(ReplyError):
        assert "new" in apply_edits(before, [made]).split("\n")


@pytest.mark.parametrize(
    "marks",
    [
        ("<<<<<<< ORIGINAL", "=======", ">>>>>>> UPDATED"),
        ("<<<<<< SEARCH", "======", ">>>>>> REPLACE"),
        ("<<<<<<<< SEARCH", "========", ">>>>>>>> REPLACE"),
        ("<<<<<<<SEARCH:  ", "=======\t", ">>>>>>>REPLACE: "),
        ("<<<<<<< search", "=======", ">>>>>>> replace"),
    ],
)
def test_marks_may_be_written_otherwise(marks: tuple[str, str, str]) -> None:
    begin, middle, end = marks
    made, last, whole = find_edits(["Change this:", begin, "a", middle, "b", end, "and no more."])
    assert (made, last, whole) == ([edit("a", "b")], 5, True)


def test_a_fence_around_a_side_is_no_part_of_it() -> None:
    fenced = edit("```python\n        c = b\n```", "\n```python\n        c = 0\n```\n")
    assert apply_edits(TEXT, [fenced]) == TEXT.replace("c = b", "c = 0")
    quoted = TEXT.replace("c = b", 'c = """\n```\n"""')
    assert apply_edits(quoted, [edit("```", "~~~")]) == quoted.replace("```", "~~~")


def test_edits_apply_in_order() -> None:
    changed = apply_edits(
        TEXT, [edit("        c = b", "        c = b + 1"), edit("        c = b + 1", "        c = 0")]
    )
    assert changed == TEXT.replace("c = b", "c = 0")


def test_spaces_are_forgiven_and_the_indentation_is_kept() -> None:
    changed = apply_edits(TEXT, [edit("b = i\nc  =  b", "b = i + 1\nif b:\n    c = b")])
    assert changed == TEXT.replace(
        "        b = i\n        c = b\n", "        b = i + 1\n        if b:\n            c = b\n"
    )
    deeper = apply_edits(TEXT, [edit("            b = i", "            b = 2")])
    assert deeper == TEXT.replace("b = i", "b = 2")


def test_an_edit_may_delete_lines() -> None:
    assert apply_edits(TEXT, [Edit(("        c = b",), ())]) == TEXT.replace("        c = b\n", "")


@pytest.mark.parametrize(("search", "words"), [("x = 1", "none"), ("    for", "none"), ("", "searches for nothing")])
def test_a_search_that_matches_nothing_is_refused(search: str, words: str) -> None:
    with pytest.raises(ReplyError, match=words):
        apply_edits(TEXT, [edit(search, "y")])


def test_a_search_that_matches_twice_is_refused_even_without_spaces() -> None:
    with pytest.raises(ReplyError, match="several"):
        apply_edits("a\nb\na\n", [edit("a", "c")])
    with pytest.raises(ReplyError, match="several"):
        apply_edits("  a\nb\n a\n", [edit("a", "c")])
    assert apply_edits("  a\nb\na\n", [edit("a", "c")]) == "  a\nb\nc\n", "an exact match outweighs a loose one"


def test_a_hostile_mark_takes_no_longer_than_it_is_long() -> None:
    """A million spaces: what backtracks over them would not come back today."""
    assert not is_marker("<<<<<<< SEARCH" + " " * 1_000_000 + "x")
    blank = ("",) * 300_000
    assert apply_edits("a\nb", [Edit((*blank, "a", *blank), (*blank, "c", *blank))]) == "c\nb"
