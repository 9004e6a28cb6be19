"""Meta-prompt files: YAML front matter and four sections of text.

::

    ---
    name: bandwidth-first
    version: 1
    language: cpp
    strategy:
      operators: {sample: 1, mutate: 2}     # sample, mutate, cross, aim, …
      stress: {memory=3: 2}                 # axis=level
      priors: {stream=stream: 2, UNROLL=4: 1.5}   # gene=value or PARAM=value
    ---
    ## Philosophy
    …
    ## Strategies
    …
    ## Pitfalls
    …
    ## Analysis
    …
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from evoforge.core import AXES, MetaPrompt, Strategy, cut
from evoforge.errors import UsageError
from evoforge.yaml_text import read_yaml

__all__ = [
    "OPERATORS",
    "SECTIONS",
    "format_meta_prompt",
    "load_meta_prompts",
    "near",
    "parse_meta_prompt",
    "read_meta_prompt",
]

SECTIONS = ("Philosophy", "Strategies", "Pitfalls", "Analysis")
"""The headings every meta-prompt has; more may follow."""

OPERATORS = ("sample", "mutate", "cross", "aim", "invent", "improve", "repair", "parametrise")
"""Emitters that a strategy may weigh; generators first."""

_LEVELS = 4  # of every axis
_MOST_WEIGHT = 1e6  # far more than any choice needs, and sums of products of it are finite
_MOST_VERSION = 1_000_000
_SHOWN = 60  # characters of what somebody wrote, in a message
_HEADING = re.compile(r"^## +(\S.*?)\s*$")
_FENCE = re.compile(r"^\s*(```|~~~)")


def _number(value: object) -> object:
    if isinstance(value, bool):  # pydantic takes it for one
        raise ValueError("a truth value is no weight")
    return value


Weight = Annotated[float, BeforeValidator(_number), Field(ge=0, le=_MOST_WEIGHT, allow_inf_nan=False)]
AxisLevel = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]*=\d+$")]
GeneValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.:-]*=[^\s=]+$")]


class _StrategyModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    operators: dict[str, Weight] = {}
    stress: dict[AxisLevel, Weight] = {}
    priors: dict[GeneValue, Weight] = {}


_EXPECTED = {
    "name": "lower-case letters, digits and dashes, such as bandwidth-first",
    "version": f"a whole number from 1 to {_MOST_VERSION:,}",
    "language": "cpp, triton or cuda",
    "parents": "a list of name@version",
    "strategy": "tables of weights: operators, stress, priors",
}


class _FrontMatter(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
    version: Annotated[int, Field(ge=1, le=_MOST_VERSION)]
    language: Annotated[str, StringConstraints(pattern=r"^(cpp|triton|cuda)$")]
    parents: list[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*@\d+$")]] = []
    strategy: _StrategyModel = _StrategyModel()


def read_meta_prompt(path: Path) -> MetaPrompt:
    """Reads one file.

    Raises:
        UsageError: it cannot be read or is no meta-prompt; names file, line and the mend.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected a readable meta-prompt file: {error}") from None
    return parse_meta_prompt(text, where=str(path))


def load_meta_prompts(folder: Path, language: str | None = None) -> list[MetaPrompt]:
    """Every ``*.md`` directly in `folder`, parents first, else in name order; with `language`, only that language's.

    Raises:
        UsageError: a file is no meta-prompt, two files have the same name and version, or one is its own ancestor.
    """
    prompts: dict[str, MetaPrompt] = {}
    for path in sorted(folder.glob("*.md")):
        prompt = read_meta_prompt(path)
        if prompt.ref in prompts:
            raise UsageError(f"{path}: another file already is {prompt.ref}; raise its version or rename it")
        prompts[prompt.ref] = prompt
    above = {ref: [parent for parent in prompt.parents if parent in prompts] for ref, prompt in prompts.items()}
    try:
        order = list(TopologicalSorter(above).static_order())
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise UsageError(f"{folder}: expected parents that were there before, got {circle}; take one out") from None
    return [prompts[ref] for ref in order if language in (None, prompts[ref].language)]


def parse_meta_prompt(text: str, where: str = "meta-prompt") -> MetaPrompt:
    """Parses the text of a meta-prompt file; `where` names it in messages.

    Raises:
        UsageError: names the line, what was expected and the nearest right key.
    """
    if "\0" in text:
        line = len(text.partition("\0")[0].splitlines() or [""])
        raise UsageError(f"{where}:{line}: expected text, got a zero byte; take it out")
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---":
        raise UsageError(f"{where}:1: expected the file to start with a line '---' and YAML front matter")
    end = next((index for index, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        raise UsageError(f"{where}:1: expected a second line '---' that ends the front matter, found none")
    front = _front_matter("\n".join(lines[1:end]), where)
    sections = _sections(lines, end + 1, where)
    for name in SECTIONS:
        if name not in sections:
            raise UsageError(f"{where}:{len(lines)}: expected a section '## {name}' with text{near(name, sections)}")
        if not sections[name]:
            line = next(index for index, heading in _headings(lines, end + 1) if heading == name) + 1
            raise UsageError(f"{where}:{line}: the section '## {name}' is empty; write a line or more below it")
    strategy = Strategy(front.strategy.operators, front.strategy.stress, front.strategy.priors)
    return MetaPrompt(front.name, front.version, front.language, strategy, sections, tuple(front.parents))


def format_meta_prompt(prompt: MetaPrompt) -> str:
    """The file of a meta-prompt; `parse_meta_prompt` gives the same prompt back.

    Raises:
        UsageError: the prompt cannot be written so (a heading inside a section, a missing section).
    """
    strategy = prompt.strategy
    front: dict[str, Any] = {"name": prompt.name, "version": prompt.version, "language": prompt.language}
    if prompt.parents:
        front["parents"] = list(prompt.parents)
    tables = {"operators": strategy.operators, "stress": strategy.stress, "priors": strategy.priors}
    front["strategy"] = {key: {k: _short(w) for k, w in table.items()} for key, table in tables.items() if table}
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=100)
    body = "\n".join(f"\n## {name}\n\n{text}" for name, text in prompt.sections.items())
    text = f"---\n{head}---\n{body}\n"
    if parse_meta_prompt(text, where=prompt.ref) != prompt:
        raise UsageError(
            f"{prompt.ref}: expected sections of text without '## ' headings or blank lines at either end, "
            "got some that would read back differently; use '### ' inside a section"
        )
    return text


def _short(weight: float) -> float | int:
    return int(weight) if float(weight).is_integer() else float(weight)


def _front_matter(text: str, where: str) -> _FrontMatter:
    try:
        data = read_yaml(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 2 + (mark.line if mark else 0)
        raise UsageError(f"{where}:{line}: expected YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{where}:2: expected front matter of 'key: value' lines, got {type(data).__name__}")
    try:
        front = _FrontMatter.model_validate(data, strict=False)
    except ValidationError as error:
        # A misspelt key is also a missing one; the first says more.
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        path = [part for part in first["loc"] if part != "[key]"]
        raise UsageError(f"{where}:{_line(node, path)}: {_sentence(first, path)}") from None
    _check_names(front.strategy, node, where)
    return front


def _check_names(strategy: _StrategyModel, node: Any, where: str) -> None:
    levels = [f"{axis}={level}" for axis in AXES for level in range(_LEVELS)]
    for table, what, known in (("operators", "operator", OPERATORS), ("stress", "level", levels)):
        for name in getattr(strategy, table):
            if name not in known:
                line = _line(node, ["strategy", table, name])
                raise UsageError(
                    f"{where}:{line}: unknown {what} {_shown(name)} in strategy.{table}{near(name, known)}"
                )
    if not any(strategy.operators.get(name, 1.0) for name in OPERATORS):
        line = _line(node, ["strategy", "operators"])
        raise UsageError(f"{where}:{line}: expected an operator that weighs more than 0, got none; leave one out")


def _sentence(error: Any, path: Sequence[str | int]) -> str:
    """What pydantic found, in one sentence."""
    dotted = ".".join(str(part) for part in path)
    if error["type"] == "extra_forbidden":
        fields = _StrategyModel.model_fields if path[0] == "strategy" else _FrontMatter.model_fields
        return f"unknown key {_shown(dotted)}{near(str(path[-1]), fields)}"
    if error["type"] == "missing":
        return f"expected the key {dotted!r}, found none"
    if "[key]" in error["loc"]:
        form = "axis=level such as memory=3" if "stress" in path else "gene=value such as UNROLL=4"
        return f"expected a key of the form {form} in {'.'.join(map(str, path[:-1]))}, got {_shown(path[-1])}"
    expected = _EXPECTED[str(path[0])]
    if len(path) == 3:
        expected = f"a weight, a number from 0 to {_MOST_WEIGHT:,.0f}"
    return f"{cut(dotted, _SHOWN)}: expected {expected}, got {_shown(error['input'])}"


def _shown(value: object) -> str:
    return cut(repr(value), _SHOWN)


def near(word: str, known: Iterable[str]) -> str:
    """The end of a sentence on a word that is unknown: the nearest of those that are known, or all of them."""
    names = [str(name) for name in known]
    close = difflib.get_close_matches(word[:_SHOWN], names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(names)}" if names else ""


def _line(node: Any, path: Sequence[str | int]) -> int:
    """The file's line (front matter starts on line 2) of the deepest node that `path` leads to."""
    line = 1
    for part in path:
        line = node.start_mark.line + 1 if line == 1 else line
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == str(part)]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line + 1


def _headings(lines: Sequence[str], start: int) -> Iterator[tuple[int, str]]:
    """(index, heading) of each ``## `` line that is not inside a code fence."""
    fenced = False
    for index in range(start, len(lines)):
        if _FENCE.match(lines[index]):
            fenced = not fenced
        found = _HEADING.match(lines[index])
        if found and not fenced:
            yield index, found.group(1)


def _sections(lines: Sequence[str], start: int, where: str) -> dict[str, str]:
    found = [*_headings(lines, start), (len(lines), "")]
    for index in range(start, found[0][0]):
        if lines[index].strip():
            raise UsageError(f"{where}:{index + 1}: expected a heading '## {SECTIONS[0]}' before any text")
    sections: dict[str, str] = {}
    for (index, name), (following, _) in itertools.pairwise(found):
        if name in sections:
            raise UsageError(f"{where}:{index + 1}: the section '## {name}' stands twice; merge the two")
        sections[name] = "\n".join(lines[index + 1 : following]).strip("\n").rstrip()
    return sections
