"""From a brief to the exact text that a model gets, within a token budget.

What never changes within a (task, target, language, meta-prompt) stands first, in the system message,
so that providers' prompt caches hit. Untrusted text enters templates as values only, fenced or on
one line (`Words`), and no name of a person, a machine or a folder leaves it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evoforge.core import MetaPrompt, Strategy
from evoforge.errors import UsageError
from evoforge.paths import data_dir
from evoforge.prompts.brief import Brief, KernelBrief, Prompt, Send
from evoforge.prompts.cards import Card, load_cards, pick_cards
from evoforge.prompts.scrub import Identity, one_line
from evoforge.prompts.words import Words, cell_words

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["LANGUAGE_NAMES", "estimate_tokens", "fill", "load_contract", "render"]

CARDS = 3
"""Technique cards per request."""

_CHARS_PER_TOKEN = 3.5  # code has 3 to 4 bytes per token with today's tokenizers; fewer is safer
LANGUAGE_NAMES = {"cpp": "C++", "cuda": "CUDA C++", "triton": "Triton"}
_TAGS = {"cpp": "cpp", "cuda": "cuda", "triton": "python"}
_EDITING = ("improve", "aim", "repair", "parametrise")


def estimate_tokens(text: str) -> int:
    """Tokens of `text`, rather too many: its UTF-8 bytes over 3.5, rounded up."""
    return math.ceil(len(text.encode("utf-8", errors="replace")) / _CHARS_PER_TOKEN)


def load_contract(language: str) -> str:
    """The source contract of a language, for `TaskBrief.contract`.

    Raises:
        UsageError: there is none.
    """
    path = data_dir("meta_prompts") / "contracts" / f"{language}.md"
    if not path.is_file():
        known = ", ".join(sorted(one.stem for one in path.parent.glob("*.md")))
        raise UsageError(f"expected a language with a source contract ({known}), got {language!r}")
    return path.read_text(encoding="utf-8").strip()


def render(
    brief: Brief,
    meta_prompt: MetaPrompt,
    *,
    tokens: int = 24000,
    send: Send | None = None,
    cards: Sequence[Card] | None = None,
    identity: Identity | None = None,
) -> Prompt:
    """The request for `brief` in at most `tokens` tokens (`estimate_tokens` of both messages).

    Over budget, what helps least goes first: technique cards, failures, good exemplars, attempts
    (the oldest first), compiler facts. The parents' sources never go.

    Args:
        cards: to pick from; by default those that ship.
        identity: what must not appear; by default this process's.

    Raises:
        UsageError: not even the task and the parents fit.
    """
    words = Words(identity or Identity.here(), send or Send())
    known = load_cards() if cards is None else cards
    chosen = _cards(brief, known, words.send)
    system = _system(brief, meta_prompt, words)
    facts, dropped = True, []
    while True:
        user = _user(brief, chosen, words, facts=facts)
        need = estimate_tokens(system) + estimate_tokens(user)
        if need <= tokens:
            break
        if chosen:
            dropped.append(f"card {chosen[-1].name}")
            chosen = chosen[:-1]
        elif brief.bad:
            dropped.append(f"failure {brief.bad[-1].candidate.short_id}")
            brief = replace(brief, bad=brief.bad[:-1])
        elif brief.good:
            dropped.append(f"exemplar {brief.good[-1].candidate.short_id}")
            brief = replace(brief, good=brief.good[:-1])
        elif brief.attempts:
            dropped.append("attempt")
            brief = replace(brief, attempts=brief.attempts[1:])
        elif facts and brief.parents:
            dropped.append("compiler facts")
            facts = False
        else:
            raise UsageError(
                f"expected the task and its parents to fit {tokens} tokens, got about {need}; raise meta_prompts.tokens"
            )
    shown = tuple(kernel.candidate.id for kernel in (*brief.good, *brief.bad))
    return Prompt(system, user, shown, tuple(card.name for card in chosen), tuple(dropped))


def _cards(brief: Brief, known: Sequence[Card], send: Send) -> tuple[Card, ...]:
    start = brief.parents[0].cell if brief.parents else None
    bottleneck = brief.bottleneck or ("correctness" if brief.operator == "repair" else None)
    facts = brief.task.target_facts if send.hardware else {}
    words = [*facts.values(), *brief.task.workloads.values()]
    features = frozenset(re.findall(r"\w+", " ".join(words).lower()))
    return pick_cards(
        known,
        brief.task.language,
        start,
        brief.target_cell,
        bottleneck,
        CARDS,
        axes=tuple(brief.axes),
        features=features,
        turn=brief.turn,
    )


def _system(brief: Brief, meta_prompt: MetaPrompt, words: Words) -> str:
    task = brief.task
    return fill(
        "system.md.j2",
        language_name=LANGUAGE_NAMES.get(task.language, task.language),
        contract=task.contract,
        sections=[(one_line(name, 60), words.text(text)) for name, text in meta_prompt.sections.items()],
        favours=_favours(meta_prompt.strategy),
        source=words.task_source(task),
        workloads=words.workloads(task),
        precision=words.line(task.precision),
        tolerance=words.line(task.tolerance, 600),
        times=words.times(task),
        facts=words.facts(task),
    )


def _favours(strategy: Strategy) -> list[str]:
    """Axis levels and decisions that weigh other than 1; operators are the emitters' own matter."""
    tables = {"axis levels": strategy.stress, "decisions": strategy.priors}
    rows = []
    for name, table in tables.items():
        weights = [f"{one_line(key, 60)} {weight:g}" for key, weight in sorted(table.items()) if weight != 1]
        rows += [f"{name}: {', '.join(weights)}"] if weights else []
    return rows


def _user(brief: Brief, chosen: Sequence[Card], words: Words, *, facts: bool) -> str:
    def kernels(some: Sequence[KernelBrief], with_facts: bool = False) -> list[Any]:
        return [words.kernel(kernel, brief, compiler_facts=with_facts) for kernel in some]

    instruction = fill(
        f"operators/{brief.operator}.md.j2",
        target_cell=cell_words(brief.target_cell, brief.axes) if brief.target_cell is not None else "",
        bottleneck=brief.bottleneck or "",
    )
    return fill(
        "user.md.j2",
        parents=kernels(brief.parents, facts),
        attempts=[words.attempt(attempt) for attempt in brief.attempts],
        good=kernels(brief.good),
        bad=kernels(brief.bad),
        cards=[card.text for card in chosen],
        instruction=instruction.strip(),
        edits=brief.operator in _EDITING and words.send.kernels,
        tag=_TAGS.get(brief.task.language, "text"),
    )


def fill(template: str, **values: object) -> str:
    """A template of ``templates/prompts`` with its values; one blank line in a row outside of fences."""
    text = _environment(str(data_dir("templates") / "prompts")).get_template(template).render(**values)
    return "\n".join(_spaced(text.strip().split("\n"))) + "\n"


def _spaced(lines: Sequence[str]) -> Iterator[str]:
    """`lines` with single blank ones; fenced text, which edits have to match, stays as it is."""
    marks, blank = "", False
    for line in lines:
        bare = line.strip()
        if marks:
            marks = "" if bare.startswith(marks) and not bare.strip("`") else marks
        elif bare.startswith("```"):
            marks = bare[: len(bare) - len(bare.lstrip("`"))]
        elif not bare and blank:
            continue
        blank = not bare and not marks
        yield line


@functools.lru_cache(maxsize=4)
def _environment(folder: str) -> Environment:
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
