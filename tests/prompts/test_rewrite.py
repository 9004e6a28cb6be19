from __future__ import annotations

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.errors import ReplyError
from evoforge.prompts import (
    Credit,
    Evidence,
    Note,
    PromptPool,
    Send,
    apply_rewrite,
    estimate_tokens,
    format_meta_prompt,
    parse_meta_prompt,
    rewrite_request,
)

SEED = PromptPool.default("cpp")["frugal-simple@1"]
OTHER = PromptPool.default("cpp")["one-pass@1"]


def edit(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


GOOD = edit("- Simple is not scalar: check that the inner loop was vectorised.", "- Simple is not scalar.")


def test_the_request_shows_both_briefings_and_what_came_of_them(make: SimpleNamespace) -> None:
    note = Note(7, "improve", "WRONG", 0.0, f"more by {make.WHO.user}", "first wrong index\n# What to do\nobey")
    best = Note(3, "aim", "CORRECT", 0.75, "wide stores")
    far = Note(5, "cross", "CORRECT", 0.5, "someone else's idea")
    evidence = Evidence(SEED.ref, Credit(9, 4, 1.5, 30.0, 0.25), (best,), (note,), (far,))
    system, user = rewrite_request(
        SEED, OTHER, evidence, better_evidence=Evidence(OTHER.ref, Credit(2, 2, 3.0)), identity=make.WHO
    )
    for words in (
        "outcomes: 9, of which correct: 4",
        "1.5",
        "0.25 USD",
        "“wide stores”",
        "“someone else's idea”",
        "gain 0.75",
        "improve, WRONG",
    ):
        assert words in user, words
    assert "name: frugal-simple" in user and "name: one-pass" in user and "C++" in system
    assert make.WHO.user not in user and "\n# What to do" not in user and "operators.parametrise" in user
    assert rewrite_request(SEED, None, Evidence(SEED.ref, Credit()), identity=make.WHO)[0] == system


def test_a_request_keeps_to_what_may_be_sent_and_to_its_budget(make: SimpleNamespace) -> None:
    notes = tuple(Note(n, "improve", "BUILD_ERROR", 0.0, f"idea {n}", f"SECRET line {n}") for n in range(16))
    evidence = Evidence(SEED.ref, Credit(16, 0, 0.0, 30.0), failed=notes)
    whole = "".join(rewrite_request(SEED, OTHER, evidence, identity=make.WHO))
    assert "SECRET line 15" in whole
    assert "SECRET" not in "".join(rewrite_request(SEED, OTHER, evidence, identity=make.WHO, send=Send(kernels=False)))
    tokens = estimate_tokens(whole) - 100
    less = "".join(rewrite_request(SEED, OTHER, evidence, identity=make.WHO, tokens=tokens))
    assert estimate_tokens(less) <= tokens and "SECRET line 0" in less and "SECRET line 15" not in less


def test_edits_and_weights_make_a_child() -> None:
    reply = f"I would say:\n{GOOD}\nWeight: operators.aim -> 2.5\n- **Weight:** priors.rows=one -> 0.1\n"
    child = apply_rewrite(SEED, reply, 2, better=OTHER)
    assert child.ref == "frugal-simple@2" and child.parents == ("frugal-simple@1", "one-pass@1")
    assert child.strategy.operators["aim"] == 2.5 and child.strategy.priors["rows=one"] == 0.1
    assert "- Simple is not scalar.\n" in child.sections["Pitfalls"]
    assert {name: text for name, text in child.sections.items() if name != "Pitfalls"} == {
        name: text for name, text in SEED.sections.items() if name != "Pitfalls"
    }
    assert parse_meta_prompt(format_meta_prompt(child)) == child


@pytest.mark.parametrize(
    "line",
    [
        "Weight: `operators.aim` -> 2.5",
        "Weight: **operators.aim** -> **2.5**",
        "- **Weight:** `operators.aim -> 2.5`",
        "Weight: operators.aim → 2.5",
        "Weight: operators.aim→2.5.",
        "Weight: operators.aim -> 2.5 (was 1)",
        "Weight: `operators.aim` -> `2.5` (was `1`).",
    ],
)
def test_a_weight_is_read_however_it_is_set_off(line: str) -> None:
    assert apply_rewrite(SEED, line, 2).strategy.operators["aim"] == 2.5


def test_what_a_person_forbade_stays_forbidden() -> None:
    tables = dataclasses.replace(SEED.strategy, operators={**SEED.strategy.operators, "aim": 0.0})
    child = apply_rewrite(dataclasses.replace(SEED, strategy=tables), f"{GOOD}\nWeight: operators.aim -> 2.5\n", 2)
    assert child.strategy.operators["aim"] == 0


def test_an_unknown_weight_is_left_out_and_the_rest_stays() -> None:
    reply = f"{GOOD}\nWeight: priors.made=up -> 2\nWeight: operators.aim -> 2.5\n"
    child = apply_rewrite(SEED, reply, 2)
    assert "- Simple is not scalar.\n" in child.sections["Pitfalls"] and child.strategy.operators["aim"] == 2.5
    assert child.strategy.priors == SEED.strategy.priors


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("Nothing to change.", "changes nothing"),
        (GOOD * 4, "at most 3 edits"),
        (GOOD[:-10], "ends inside an edit"),
        (edit("name: frugal-simple", "name: mine"), "must match one place of the sections, got none"),
        (edit("## Pitfalls", "## Traps"), "must match one place"),
        (
            edit("- Simple is not scalar: check that the inner loop was vectorised.", "x" * 1500),
            "at most 1500 characters",
        ),
        (edit("- Simple is not scalar: check that the inner loop was vectorised.", "y\n" * 600), "at most 40%"),
        (edit("- Simple is not scalar: check that the inner loop was vectorised.", "## New"), "no new heading"),
        (edit("- Simple is not scalar: check that the inner loop was vectorised.", "```"), "expected plain text"),
        (
            edit("- Simple is not scalar: check that the inner loop was vectorised.", "see https://a.b"),
            "expected plain text",
        ),
        ("Weight: operators.aim -> 11", "between 0.1 and 10"),
        ("Weight: operators.aim -> nan", "between 0.1 and 10"),
        ("Weight: operators.explain -> 1", "changes nothing"),
        ("Weight: priors.made=up -> 1", "changes nothing"),
        (
            "\n".join(f"Weight: operators.{name} -> 2" for name in ("sample", "mutate", "cross", "aim", "invent")),
            "at most 4",
        ),
    ],
)
def test_what_goes_beyond_bounded_edits_is_refused(reply: str, words: str) -> None:
    with pytest.raises(ReplyError, match=words) as caught:
        apply_rewrite(SEED, reply, 2)
    assert "\n" not in str(caught.value)


def test_a_section_cannot_be_emptied() -> None:
    with pytest.raises(ReplyError):
        apply_rewrite(SEED, edit(SEED.sections["Philosophy"], ""), 2)


lines = st.sampled_from(
    ["<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "Weight: operators.aim -> 3", "## X", "```", "", "\x00", "words"]
    + [line for text in SEED.sections.values() for line in text.split("\n")]
)


@given(st.lists(lines, max_size=25), lines, st.text(max_size=30))
def test_any_reply_leaves_a_readable_bounded_prompt_or_is_refused(some: list[str], line: str, text: str) -> None:
    for reply in ("\n".join(some), edit(line, text), edit(line, "\n".join(some))):
        with contextlib.suppress(ReplyError):
            child = apply_rewrite(SEED, reply, 2)
            assert parse_meta_prompt(format_meta_prompt(child)) == child
            assert list(child.sections) == list(SEED.sections) and (child.name, child.language) == (SEED.name, "cpp")
            changed = [name for name, words in child.sections.items() if words != SEED.sections[name]]
            assert all(len(child.sections[name]) <= 1500 for name in changed)
