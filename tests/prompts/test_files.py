from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoforge.archives import descriptor
from evoforge.core import AXES, MetaPrompt, Strategy
from evoforge.errors import UsageError
from evoforge.prompts import format_meta_prompt, load_meta_prompts, parse_meta_prompt, read_meta_prompt
from evoforge.prompts.files import OPERATORS, SECTIONS

GOOD = """---
name: bandwidth-first
version: 2
language: cpp
parents: [bandwidth-first@1]
strategy:
  operators: {mutate: 2, aim: 0.5}
  stress:
    memory=3: 2
  priors:
    store=stream: 1.5
    UNROLL=4: 3
---

## Philosophy

Bytes are the budget.

## Strategies

- one
```c
## not a heading
```

## Pitfalls

Tails.

## Analysis

Roofline first.
"""


def test_a_file_is_read_whole() -> None:
    prompt = parse_meta_prompt(GOOD)
    assert (prompt.ref, prompt.language, prompt.parents) == ("bandwidth-first@2", "cpp", ("bandwidth-first@1",))
    assert prompt.strategy.operators == {"mutate": 2.0, "aim": 0.5}
    assert prompt.strategy.stress == {"memory=3": 2.0}
    assert prompt.strategy.priors == {"store=stream": 1.5, "UNROLL=4": 3.0}
    assert list(prompt.sections) == list(SECTIONS)
    assert prompt.sections["Philosophy"] == "Bytes are the budget."
    assert prompt.sections["Strategies"] == "- one\n```c\n## not a heading\n```"


def test_writing_and_reading_give_the_same_prompt_back() -> None:
    prompt = parse_meta_prompt(GOOD)
    assert parse_meta_prompt(format_meta_prompt(prompt)) == prompt


weights = st.floats(0, 100, allow_nan=False) | st.integers(0, 9)
words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" "), max_size=20)


@settings(max_examples=30, deadline=None)
@given(
    operators=st.dictionaries(st.sampled_from(["sample", "mutate", "cross", "aim"]), weights),
    stress=st.dictionaries(st.sampled_from(["memory=3", "tiling=0", "fusion=2"]), weights),
    priors=st.dictionaries(st.sampled_from(["unroll=many", "UNROLL=4", "placement:s3=row", "x=1.5", "y=no"]), weights),
    text=st.lists(words, min_size=1, max_size=4),
)
def test_round_trip_of_any_prompt_or_a_refusal_to_write(
    operators: dict[str, float], stress: dict[str, float], priors: dict[str, float], text: list[str]
) -> None:
    sections = {heading: "\n".join(text) for heading in SECTIONS}
    prompt = MetaPrompt("any", 3, "cpp", Strategy(operators, stress, priors), sections)
    try:
        written = format_meta_prompt(prompt)
    except UsageError:
        # Only what would be lost is refused: blank edges, headings, and fences that hide headings.
        assert (
            "" in (text[0].rstrip(), text[-1].rstrip())
            or text[-1] != text[-1].rstrip()
            or any(re.match(r"## +\S|\s*(```|~~~)", line) for line in text)
        )
    else:
        assert parse_meta_prompt(written) == prompt


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("version: 2", "verison: 2", 3, "did you mean 'version'"),
        ("  stress:", "  stres:", 8, "did you mean 'stress'"),
        ("{mutate: 2,", "{mutat: 2,", 7, "did you mean 'mutate'"),
        ("version: 2", "version: two", 3, "version"),
        ("version: 2\n", "", 2, "expected the key 'version'"),
        ("memory=3: 2", "memory: 2", 9, "axis=level"),
        ("UNROLL=4: 3", "UNROLL: 3", 12, "gene=value"),
        ("memory=3: 2", "memory=4: 2", 9, "unknown level 'memory=4' in strategy.stress; did you mean 'memory=3'"),
        ("memory=3: 2", "colour=9: 2", 9, "unknown level 'colour=9' in strategy.stress"),
        *[
            ("UNROLL=4: 3", f"UNROLL=4: {weight}", 12, "expected a weight, a number from 0 to 1,000,000, got " + shown)
            for weight, shown in {
                "-3": "-3",
                "many": "'many'",
                "true": "True",
                ".inf": "inf",
                ".nan": "nan",
                "1e308": "1e+308",
                "1" + "0" * 400: "1" + "0" * 58 + "…",
            }.items()
        ],
        ("{mutate: 2, aim: 0.5}", "{" + ", ".join(f"{name}: 0" for name in OPERATORS) + "}", 7, "weighs more than 0"),
        ("operators: {mutate: 2, aim: 0.5}", "operators: 3", 7, "expected tables of weights"),
        ("language: cpp", "language: c", 4, "language: expected cpp, triton or cuda, got 'c'"),
        ("name: bandwidth-first", "name: größe", 2, "name: expected lower-case letters, digits and dashes"),
        ("version: 2", "version: 99999999999999999999999", 3, "a whole number from 1 to 1,000,000, got 9999999999"),
        ("name: bandwidth-first", "name: [a", 3, "expected YAML"),
        ("version: 2", "version: 2\nversion: 3", 4, "the key 'version' stands twice"),
        ("version: 2", "version: 2024-99-99", 2, "month must be in 1..12"),
        ("version: 2", "version: " + "[" * 3000 + "]" * 3000, 2, "nested too deeply"),
        ("parents: [bandwidth-first@1]", "parents: [bandwidth-first]", 5, "parents.0"),
        ("## Pitfalls", "## Pitfall", 32, "expected a section '## Pitfalls' with text; did you mean 'Pitfall'?"),
        ("## Pitfalls", "## Analysis", 30, "stands twice"),
        ("## Philosophy", "Words.\n\n## Philosophy", 15, "before any text"),
        ("---\nname", "name", 1, "start with a line '---'"),
        ("UNROLL=4: 3\n---", "UNROLL=4: 3\n", 1, "second line '---'"),
        ("Roofline first.", "", 30, "the section '## Analysis' is empty"),
        ("Tails.", "", 26, "the section '## Pitfalls' is empty"),
        ("Tails.", "Ta\0ils.", 28, "a zero byte"),
        ("  operators", "  " + "x" * 500, 7, "unknown key 'strategy.xxx"),
    ],
)
def test_errors_name_file_line_and_the_mend(old: str, new: str, line: int, words: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError) as caught:
        parse_meta_prompt(GOOD.replace(old, new, 1), where="p.md")
    message = str(caught.value)
    assert words in message
    assert re.match(r"p\.md:(\d+): ", message) and int(message.split(":")[1]) == line, message
    assert "\n" not in message and len(message) < 200


def test_the_axes_are_the_archives() -> None:
    assert {axis: len(known.levels) for axis, known in descriptor.AXES.items()} == dict.fromkeys(AXES, 4)


def test_a_prompt_that_would_read_back_differently_is_refused() -> None:
    prompt = parse_meta_prompt(GOOD)
    with pytest.raises(UsageError, match="###"):
        format_meta_prompt(replace(prompt, sections={**prompt.sections, "Pitfalls": "a\n## b\nc"}))


def test_a_folder_is_read_in_name_order_by_language(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text(GOOD)
    (tmp_path / "a.md").write_text(GOOD.replace("bandwidth-first", "other").replace("cpp", "triton"))
    (tmp_path / "techniques").mkdir()
    assert [prompt.name for prompt in load_meta_prompts(tmp_path)] == ["other", "bandwidth-first"]
    assert [prompt.name for prompt in load_meta_prompts(tmp_path, "cpp")] == ["bandwidth-first"]
    (tmp_path / "c.md").write_text(GOOD)
    with pytest.raises(UsageError, match=r"c\.md: another file already is bandwidth-first@2"):
        load_meta_prompts(tmp_path)


def test_parents_come_before_their_children(tmp_path: Path) -> None:
    child = GOOD.replace("name: bandwidth-first", "name: a-child").replace("bandwidth-first@1", "z-parent@1")
    parent = GOOD.replace("name: bandwidth-first", "name: z-parent").replace("version: 2", "version: 1")
    (tmp_path / "a.md").write_text(child)
    (tmp_path / "z.md").write_text("\ufeff" + parent.replace("parents: [bandwidth-first@1]\n", ""))
    assert [prompt.name for prompt in load_meta_prompts(tmp_path)] == ["z-parent", "a-child"]
    (tmp_path / "z.md").write_text(parent.replace("bandwidth-first@1", "a-child@2"))
    with pytest.raises(UsageError, match="expected parents that were there before, got"):
        load_meta_prompts(tmp_path)


def test_a_missing_file_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.md"):
        read_meta_prompt(tmp_path / "nowhere.md")
