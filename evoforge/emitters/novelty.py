"""Is it new? Asked before anything is paid, cheapest question first.

Exact id, then the normalised syntax tree (comments, spacing and the names of what the file itself
declares are gone), then the compiled text section. The values and choices of declared parameters
stay in the second: the same loops over other choices are another template.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evoforge.core import Candidate, Params

__all__ = ["NoveltyGate", "Twin", "normalised_hash"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", re.DOTALL)
_TOKEN = re.compile(r"\"(?:\\.|[^\"\\])*\"|[A-Za-z_]\w*|[\w.]+|\S")
_WORD = re.compile(r"[A-Za-z_]\w*")
_FORMLESS = re.compile(r"[\s\\]+")
_REMARK = re.compile(r"\s*//(?!\s*evoforge:)")
_HEADER = re.compile(r"^\s*//\s*evoforge:\s*(param|require)\s+(.*?)\s*$", re.MULTILINE)
# The ABI's accessors take a type as their first argument, which is no C++ expression; written as
# templates they parse.
_ACCESSOR = re.compile(r"\bEVO_(IN|CST|OUT)\s*\(\s*([A-Za-z_][\w:]*)\s*,")
# The grammar knows no pragma between a loop's head and its body; an attribute may stand there.
_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma\b((?:\\\n|[^\n])*)", re.MULTILINE)
_MARK = re.compile(r"\[\[evo_pragma\((\d+)\)\]\]")
_KEEP = re.compile(r"evo_|EVO_")
_DEEPEST = 500  # levels of a syntax tree, each a call of ours
_NAMES = {"identifier", "type_identifier", "field_identifier", "namespace_identifier", "statement_identifier"}
_SCOPES = {
    "compound_statement", "for_statement", "for_range_loop", "function_definition", "lambda_expression",
    "if_statement", "while_statement", "template_declaration", "preproc_function_def",
}  # fmt: skip
_WHOLE = {"preproc_arg", "string_literal", "char_literal", "raw_string_literal"}
_TYPE_PARAMETERS = {"type_parameter_declaration", "optional_type_parameter_declaration"}
_PASS_ON = {"reference_declarator", "parenthesized_declarator", "structured_binding_declarator"}
_DECLARED_BY_NAME = {
    "preproc_def", "preproc_function_def", "struct_specifier", "class_specifier", "enum_specifier",
    "union_specifier", "enumerator", "alias_declaration", "namespace_definition", "concept_definition",
}  # fmt: skip


@dataclass(frozen=True)
class Twin:
    """The known candidate that a new one repeats, and what gave it away: id, tree or object."""

    candidate: str
    level: str


class NoveltyGate:
    """Remembers what was tried. Pure memory: telling a store's candidates again restores it."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        # Texts of equal outlines: only they can have equal trees, and are parsed once a second one comes.
        self._alike: dict[bytes, list[Candidate]] = {}
        self._trees: dict[str, str] = {}
        self._codes: dict[bytes, str] = {}
        self._objects: dict[tuple[str, tuple[tuple[str, int], ...]], str] = {}

    def twin(self, candidate: Candidate) -> Twin | None:
        """The known candidate with this text or this syntax tree; None if it is new."""
        if candidate.id in self._ids:
            return Twin(candidate.id, "id")
        known = self.copy(candidate) or self._tree_twin(candidate)
        return Twin(known, "tree") if known else None

    def copy(self, candidate: Candidate) -> str | None:
        """The known candidate of this text, comments of the generator's aside: a question that needs no tree."""
        return self._codes.get(_brief(_code(candidate)))

    def add(self, candidate: Candidate) -> None:
        """From now on it is known; the first of several equal trees stays their name."""
        if candidate.id not in self._ids:
            self._ids.add(candidate.id)
            self._codes.setdefault(_brief(_code(candidate)), candidate.id)
            self._alike.setdefault(_outline(candidate), []).append(candidate)

    def object_twin(self, candidate: Candidate, text_hash: str, params: Params | None = None) -> Twin | None:
        """Another candidate that compiled to the same text section; remembers this one otherwise.

        `params` are values that the object still reads at run time (none when all are macros).
        """
        key = (text_hash, tuple(sorted((params or {}).items())))
        known = self._objects.setdefault(key, candidate.id)
        return Twin(known, "object") if known != candidate.id else None

    @property
    def ids(self) -> frozenset[str]:
        """Ids of everything added."""
        return frozenset(self._ids)

    def _tree_twin(self, candidate: Candidate) -> str | None:
        """The first candidate that was added with an equal tree."""
        alike = self._alike.get(_outline(candidate))
        if alike is None:
            return None
        while alike:
            known = alike.pop(0)
            self._trees.setdefault(normalised_hash(known.source, known.language), known.id)
        return self._trees.get(normalised_hash(candidate.source, candidate.language))


def _code(candidate: Candidate) -> str:
    """The text; the generator's without its lines of comment, which name decisions that are void in this kernel too."""
    if candidate.genome is None:
        return candidate.source
    return "\n".join(line for line in candidate.source.splitlines() if not _REMARK.match(line))


def _brief(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _outline(candidate: Candidate) -> bytes:
    """What equal trees have in common, told without parsing: the text without comments, spacing and any names."""
    if candidate.language not in ("cpp", "cuda"):
        return _brief(f"{candidate.language} {candidate.source}")
    return _brief(candidate.language + _FORMLESS.sub("", _WORD.sub("w", _strip_comments(candidate.source))))


def normalised_hash(source: str, language: str = "cpp") -> str:
    """sha256 of the source without comments, spacing and chosen names.

    Names that the file declares are numbered in order of declaration, scope by scope; all others
    (intrinsics, library functions, the ABI's ``evo_*`` and ``EVO_*``) are kept. C++ that does not
    parse is hashed without comments and with spacing collapsed, other languages as they stand.
    """
    if language not in ("cpp", "cuda"):
        return hashlib.sha256(f"{language}\0{source}".encode()).hexdigest()
    header = _HEADER.findall(source)
    code = _strip_comments(source)
    tokens = _tree_tokens(code, header)
    if tokens is None:
        tokens = [*itertools.chain(*header), *_TOKEN.findall(code)]
    return hashlib.sha256("\0".join([language, *tokens]).encode()).hexdigest()


def _strip_comments(source: str) -> str:
    return _COMMENT.sub(lambda found: found.group(1) or " ", source)


@functools.cache
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_cpp

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def _tree_tokens(code: str, header: Sequence[tuple[str, str]]) -> list[str] | None:
    """The normalised tokens, or None where the text does not parse or nests deeper than `_DEEPEST`."""
    code = _ACCESSOR.sub(r"EVO_\1<\2>(", code)
    pragmas = _PRAGMA.findall(code)
    numbers = itertools.count()
    marked = _PRAGMA.sub(lambda _: f"[[evo_pragma({next(numbers)})]]", code)
    trees = (_parser().parse(text.encode()) for text in dict.fromkeys((marked, code)))
    tree = next((one for one in trees if not one.root_node.has_error), None)
    if tree is None:
        return None
    writer = _Writer(pragmas)
    for kind, text in header:
        if kind == "param" and (name := _WORD.match(text)):
            writer.bind(name.group())
    for kind, text in header:
        writer.tokens.append(f"@{kind}")
        writer.text(text)
    try:
        writer.visit(tree.root_node, declaring=False)
    except RecursionError:
        return None
    return writer.tokens


class _Writer:
    """Walks the tree in reading order and writes tokens, renaming what is declared on the way.

    Args:
        pragmas: the texts that marks in the tree stand for.
    """

    def __init__(self, pragmas: Sequence[str]) -> None:
        self.tokens: list[str] = []
        self._pragmas = pragmas
        self._scopes: list[dict[str, str]] = [{}]
        self._bound_outside: set[int] = set()
        self._count = 0

    def bind(self, name: str) -> None:
        """Declares `name` in the innermost scope, unless it is the ABI's or declared there already."""
        if not _KEEP.match(name) and name not in self._scopes[-1]:
            self._scopes[-1][name] = f"${self._count}"
            self._count += 1

    def text(self, text: str) -> None:
        """Raw text (macro bodies, pragmas, headers), token by token."""
        self.tokens += [self._lookup(token) for token in _TOKEN.findall(text)]

    def visit(self, node: Any, declaring: bool, depth: int = 0) -> None:
        """Writes `node`; `declaring` says that the name in it is being declared, not used.

        Raises:
            RecursionError: it nests deeper than `_DEEPEST`, however deep the caller's own calls are.
        """
        if depth > _DEEPEST:
            raise RecursionError
        mark = _MARK.fullmatch(node.text.decode()) if node.type == "attribute_declaration" else None
        if mark and int(mark.group(1)) < len(self._pragmas):
            self.tokens.append("@pragma")
            self.text(self._pragmas[int(mark.group(1))])
            return
        if node.child_count == 0 or node.type in _WHOLE:
            self._leaf(node, declaring)
            return
        if node.type in _SCOPES:
            self._bind_outside(node)
            self._scopes.append({})
        for index, child in enumerate(node.children):
            # Half of the nodes are punctuation and keywords, which declare nothing.
            declares = child.is_named and _declares(node, node.field_name_for_child(index), child, declaring)
            self.visit(child, declares, depth + 1)
        if node.type in _SCOPES:
            self._scopes.pop()
        if node.type.startswith("preproc_"):
            self.tokens.append("@end")

    def _bind_outside(self, node: Any) -> None:
        """The name of a function, template or macro belongs to the scope around it."""
        inner = node
        if node.type == "template_declaration":
            inner = next((child for child in node.named_children if child.type == "function_definition"), None)
        elif node.type == "preproc_function_def":
            inner = node.child_by_field_name("name")
        elif node.type != "function_definition":
            return
        while inner is not None and inner.type not in _NAMES:
            inner = inner.child_by_field_name("declarator")
        if inner is not None and inner.id not in self._bound_outside:
            self.bind(inner.text.decode())
            self._bound_outside.add(inner.id)

    def _leaf(self, node: Any, declaring: bool) -> None:
        text = node.text.decode()
        if node.type == "preproc_arg":
            self.text(text)
        elif node.type in _NAMES:
            if declaring and node.id not in self._bound_outside:
                self.bind(text)
            self.tokens.append(self._lookup(text))
        elif text.strip():
            self.tokens.append(text)

    def _lookup(self, name: str) -> str:
        for table in reversed(self._scopes):
            if name in table:
                return table[name]
        return name


def _declares(node: Any, field: str | None, child: Any, declaring: bool) -> bool:
    """Whether the name inside `child`, the `field` of `node`, is a declaration."""
    if field == "declarator" or (field == "name" and node.type in _DECLARED_BY_NAME):
        return True
    if node.type == "preproc_params" or (field == "label" and node.type == "labeled_statement"):
        return True
    if node.type in _TYPE_PARAMETERS:
        return bool(child.type == "type_identifier" and field != "default_type")
    return declaring and field is None and node.type in _PASS_ON
