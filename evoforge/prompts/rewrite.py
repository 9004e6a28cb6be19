"""Children of meta-prompts that a model writes: bounded edits, made from evidence.

The reply is as untrusted as a kernel's. It can move words within sections and weights of known keys,
and no more: name, language, headings and size stay what evolution allows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from evoforge.core import MetaPrompt, Strategy
from evoforge.errors import ReplyError, UsageError
from evoforge.prompts.brief import Send
from evoforge.prompts.edits import Edit, apply_edits, find_edits, is_marker
from evoforge.prompts.evolve import LEAST, MOST, Vocabulary
from evoforge.prompts.files import format_meta_prompt
from evoforge.prompts.pool import Evidence, Note
from evoforge.prompts.render import estimate_tokens, fill
from evoforge.prompts.reply import MAX_REPLY_CHARS, without_thoughts
from evoforge.prompts.scrub import Identity, clean
from evoforge.prompts.words import Words, fence

__all__ = ["MAX_CHANGE", "MAX_EDITS", "MAX_SECTION_CHARS", "MAX_WEIGHTS", "apply_rewrite", "rewrite_request"]

MAX_EDITS = 3
MAX_WEIGHTS = 4
MAX_SECTION_CHARS = 1500
MAX_CHANGE = 0.4
"""Share of the sections' characters that one rewrite may replace."""

_WEIGHT = re.compile(
    r"^[\s>*`-]{0,8}Weight[*`]{0,3}:[\s*`]{0,4}(operators|stress|priors)\.([^\s*`]{1,80})[\s*`]{0,6}(?:->|→)[\s*`]{0,6}"
    r"([^\s*`(]{1,20})[\s*`.]{0,6}(?:\([^()]{0,80}\)[\s*`.]{0,6})?$"
)
_REFUSED = re.compile(r"```|~~~|https?:|www\.|<<<<<<<|>>>>>>>|\{\{|\{%", re.I)


def rewrite_request(
    prompt: MetaPrompt,
    better: MetaPrompt | None,
    evidence: Evidence,
    *,
    better_evidence: Evidence | None = None,
    vocabulary: Vocabulary | None = None,
    identity: Identity | None = None,
    send: Send | None = None,
    tokens: int | None = None,
) -> tuple[str, str]:
    """(system, user): asks a model to improve `prompt` in the light of what came of it.

    Args:
        send: what may leave this machine (default: everything).
        tokens: the most that both may have together, by estimate: evidence is cut down to it, the least telling first.
    """
    words = Words(identity or Identity.here(), send or Send())
    known = _known(prompt, better, vocabulary)
    keys = [f"{table}.{key}" for table in ("operators", "stress", "priors") for key in sorted(getattr(known, table))]
    system = fill(
        "rewrite_system.md.j2", language_name={"cpp": "C++", "cuda": "CUDA C++"}.get(prompt.language, "Triton")
    )
    for most in (None, 16, 8, 4, 2, 0):
        user = _user(prompt, better, evidence, better_evidence, keys, words, most)
        if tokens is None or estimate_tokens(system + user) <= tokens:
            break
    return system, user


def _user(
    prompt: MetaPrompt, better: MetaPrompt | None, evidence: Evidence, better_evidence: Evidence | None,
    keys: Sequence[str], words: Words, most: int | None,
) -> str:  # fmt: skip
    """With at most so many notes of a kind."""
    return fill(
        "rewrite_user.md.j2",
        prompt=fence(words.text(format_meta_prompt(prompt)).strip(), "markdown"),
        better=fence(words.text(format_meta_prompt(better)).strip(), "markdown") if better is not None else "",
        evidence=_record(evidence, words, most),
        better_evidence=_record(better_evidence, words, most) if better_evidence is not None else None,
        max_edits=MAX_EDITS,
        max_weights=MAX_WEIGHTS,
        max_chars=MAX_SECTION_CHARS,
        max_share=round(MAX_CHANGE * 100),
        least=f"{LEAST:g}",
        most=f"{MOST:g}",
        keys=", ".join(keys),
    )


def apply_rewrite(
    prompt: MetaPrompt,
    reply_text: str,
    version: int,
    *,
    better: MetaPrompt | None = None,
    vocabulary: Vocabulary | None = None,
) -> MetaPrompt:
    """The child that a reply to `rewrite_request` describes.

    Args:
        better: as in the request; it becomes a second parent, and its keys are known.

    Raises:
        ReplyError: the reply changes nothing, too much, or what must stay; one sentence says what.
    """
    if len(reply_text) > MAX_REPLY_CHARS:
        raise ReplyError(f"expected a reply of at most {MAX_REPLY_CHARS} characters, got {len(reply_text)}")
    lines = without_thoughts(clean(reply_text).split("\n"))
    edits, _, whole = find_edits(lines)
    if not whole:
        raise ReplyError("the reply ends inside an edit; expected '>>>>>>> REPLACE' after every SEARCH")
    if len(edits) > MAX_EDITS:
        raise ReplyError(f"expected at most {MAX_EDITS} edits, got {len(edits)}")
    known = _known(prompt, better, vocabulary)
    strategy = _weighed(prompt.strategy, _outside(lines), known)
    sections = dict(prompt.sections)
    for number, edit in enumerate(edits, 1):
        name = _section(sections, edit, number)
        sections[name] = apply_edits(sections[name], [edit]).strip("\n").rstrip()
    _check_sections(prompt, sections)
    if sections == dict(prompt.sections) and strategy == prompt.strategy:
        raise ReplyError("the reply changes nothing; expected an edit of a section or a weight")
    parents = (prompt.ref, better.ref) if better is not None and better.ref != prompt.ref else (prompt.ref,)
    child = MetaPrompt(prompt.name, version, prompt.language, strategy, sections, parents)
    try:
        format_meta_prompt(child)
    except UsageError as error:
        raise ReplyError(f"the edits leave no meta-prompt: {error}") from None
    return child


def _known(prompt: MetaPrompt, better: MetaPrompt | None, vocabulary: Vocabulary | None) -> Vocabulary:
    own = Vocabulary.of([prompt, *([better] if better is not None else [])])
    if vocabulary is None:
        return own
    return Vocabulary(
        own.operators | vocabulary.operators, own.stress | vocabulary.stress, own.priors | vocabulary.priors
    )


def _outside(lines: Sequence[str]) -> list[str]:
    """Lines that are in no edit."""
    out, inside = [], False
    for line in lines:
        if is_marker(line):
            inside = not inside
        elif not inside:
            out.append(line)
    return out


def _weighed(strategy: Strategy, lines: Sequence[str], known: Vocabulary) -> Strategy:
    """`strategy` with the weights that some lines set; those of unknown keys are left out."""
    tables = {name: dict(getattr(strategy, name)) for name in ("operators", "stress", "priors")}
    set_already: set[tuple[str, str]] = set()
    for line in lines:
        found = _WEIGHT.match(line[:400])
        if found is None:
            continue
        table, key = found[1], found[2]
        if not known.knows(table, key) or tables[table].get(key) == 0:  # what a person forbade stays forbidden
            continue
        try:
            weight = float(found[3].rstrip("."))
        except ValueError:
            weight = -1.0
        if not LEAST <= weight <= MOST:
            raise ReplyError(f"expected a weight between {LEAST:g} and {MOST:g} for {key[:60]!r}, got {found[3]!r}")
        set_already.add((table, key))
        tables[table][key] = float(f"{weight:.3g}")
    if len(set_already) > MAX_WEIGHTS:
        raise ReplyError(f"expected at most {MAX_WEIGHTS} weights, got {len(set_already)}")
    return Strategy(**tables)


def _section(sections: Mapping[str, str], edit: Edit, number: int) -> str:
    """The one section that holds what an edit searches for."""
    fits = []
    reasons = []
    for name, text in sections.items():
        try:
            apply_edits(text, [edit])
        except ReplyError as error:
            reasons.append(str(error))
        else:
            fits.append(name)
    if len(fits) != 1:
        what = f"{len(fits)} sections" if fits else "none"
        several = next((reason for reason in reasons if "several" in reason or "nothing" in reason), "")
        raise ReplyError(several or f"edit {number} must match one place of the sections, got {what}")
    return fits[0]


def _check_sections(prompt: MetaPrompt, sections: Mapping[str, str]) -> None:
    changed = 0
    for name, text in sections.items():
        old = prompt.sections[name]
        if text == old:
            continue
        if len(text) > MAX_SECTION_CHARS:
            raise ReplyError(
                f"expected a section of at most {MAX_SECTION_CHARS} characters, got {len(text)} in {name!r}"
            )
        before, after = old.split("\n"), text.split("\n")
        for kind, a, b, c, d in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
            if kind == "equal":
                continue
            gone, came = "\n".join(before[a:b]), "\n".join(after[c:d])
            refused = _REFUSED.search(came) or re.search(r"```|~~~", gone)  # code that a person wrote stays
            if refused:
                raise ReplyError(f"expected plain text in {name!r}, got {refused[0]!r}")
            if re.search(r"(?m)^\s*#{1,6}\s", came):
                raise ReplyError(f"expected no new heading in {name!r}, got one")
            changed += max(len(gone), len(came))
    total = sum(len(text) for text in prompt.sections.values())
    if changed > MAX_CHANGE * total:
        raise ReplyError(f"expected at most {MAX_CHANGE:.0%} of the text to change, got {changed / max(total, 1):.0%}")


def _record(evidence: Evidence, words: Words, most: int | None) -> dict[str, object]:
    return {
        "credit": evidence.credit,
        "best": [_note(note, words) for note in evidence.best[:most] if note.gain > 0],
        "failed": [_note(note, words) for note in evidence.failed[:most]],
        "best_elsewhere": [_note(note, words) for note in evidence.best_elsewhere[:most] if note.gain > 0],
        "failed_elsewhere": [_note(note, words) for note in evidence.failed_elsewhere[:most]],
    }


def _note(note: Note, words: Words) -> str:
    parts = [f"{words.line(note.operator, 20)}, {words.line(note.status, 30)}"]
    parts += [f"gain {note.gain:.3g}"] if note.gain else []
    parts += [f"expected {words.quoted(note.hypothesis, 160)}"] if note.hypothesis else []
    parts += [f"reason {words.quoted(note.reason, 160)}"] if note.reason and words.send.kernels else []
    return ", ".join(parts)
