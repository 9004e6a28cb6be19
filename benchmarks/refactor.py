"""Rewrites a kernel's text without changing what it does, in the ways a person would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["refactored"]

Node = Any

_DEAD = """
static __attribute__((unused)) void never_called(float* p, int64_t n) {
    for (int64_t tile = 0; tile < n; tile += 64)
        for (int64_t i = tile; i < tile + 64; i += evo::lanes) evo::stream(p + i, evo::vec{});
}
"""


def refactored(source: str, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """(what was done, text), one change at a time and then all of them together."""
    source = every = _braced(source)
    for name, change in (
        ("comments", _comments), ("dead code", _dead_code), ("renaming", _rename), ("other spelling", _respell),
        ("while loops", _whiles), ("reordering", _reorder), ("pointers", _pointers),
    ):  # fmt: skip
        text = change(source, rng)
        if text != source:
            yield name, text
        every = change(every, rng)
    yield "all of it", every


def _braced(text: str) -> str:
    """Braces around loops with a pragma of their own, which the grammar takes for a statement."""
    at = 0
    while (found := re.compile(r"#pragma GCC.*\n\s*for [^{]*\{").search(text, at)) is not None:
        depth, end = 1, found.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = f"{text[: found.start()]}{{\n{text[found.start() : end]}\n}}{text[end:]}"
        at = found.end()
    return text


def _tree(text: str) -> Node:
    import tree_sitter_cpp
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_cpp.language())).parse(text.encode()).root_node


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _edit(text: str, edits: list[tuple[int, int, str]]) -> str:
    data = text.encode()
    for start, end, new in sorted(edits, reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def _comments(text: str, rng: np.random.Generator) -> str:
    """Drops comments (not the header's) and writes misleading ones."""
    lines = [line if "evoforge:" in line else re.sub(r"//.*", "", line) for line in text.splitlines()]
    noise = (
        "// tile the cache: for (t = 0; t < N; t += TILE)",
        "/* _mm512_stream_ps(p, v); prefetch(x) */",
        "// fused",
    )
    out = []
    for line in lines:
        out.append(line)
        if line.rstrip().endswith(("{", "}")) and rng.random() < 0.3:
            out.append(str(rng.choice(noise)))
    return "\n".join(out) + "\n"


def _dead_code(text: str, rng: np.random.Generator) -> str:
    """A function that nothing calls, a branch that is never taken, a variable that nothing reads."""
    start = re.search(r"\bevo_run\(const evo_call\* call\) \{\n", text)
    assert start is not None
    head = "    int64_t unread = call->n_in * 7;\n    (void)unread;\n"
    head += "    if (false) evo::stream((float*)call->ws, evo::vec{});\n"
    text = text[: start.end()] + head + text[start.end() :]
    found = re.search(r"#include \"evoforge.h\"\n", text)
    assert found is not None
    return text[: found.end()] + _DEAD + text[found.end() :]


def _rename(text: str, rng: np.random.Generator) -> str:
    """Every variable that the text declares gets another name."""
    kinds = ("init_declarator", "parameter_declaration", "pointer_declarator", "array_declarator", "declaration")
    declared: set[str] = set()
    for node in _walk(_tree(text)):
        declarator = node.child_by_field_name("declarator") if node.type in kinds else None
        if declarator is not None and declarator.type == "identifier":
            declared.add(declarator.text.decode())
    declared -= {"call", "packed"}
    # A struct's field of the same name is another thing, and so is a macro's.
    fields = {n.text.decode() for n in _walk(_tree(text)) if n.type == "field_identifier"}
    names = {name: f"q{number}_{name[::-1]}" for number, name in enumerate(sorted(declared - fields))}
    edits = [
        (node.start_byte, node.end_byte, names[node.text.decode()])
        for node in _walk(_tree(text))
        if node.type == "identifier" and node.text.decode() in names and not _spoken_for(node)
    ]
    text = _edit(text, edits)
    for pragma in set(re.findall(r"#pragma omp.*", text)):  # clauses name variables too
        text = text.replace(pragma, re.sub(r"\b\w+\b", lambda m: names.get(m.group(), m.group()), pragma))
    return text


def _spoken_for(node: Node) -> bool:
    """Part of a qualified name, or an argument of a macro that pastes it."""
    call = node.parent.parent if node.parent.type == "argument_list" else None
    pasted = call is not None and call.type == "call_expression" and call.children[0].text.startswith(b"EVO_")
    return bool(pasted or node.parent.type == "qualified_identifier")


def _respell(text: str, rng: np.random.Generator) -> str:
    """``++i`` as ``i += 1``, ``i < n`` as ``n > i``, ``a + b`` as ``b + a``, where nothing reads the value."""
    edits = []
    parallel = _pragma_loops(text)
    for node in _walk(_tree(text)):
        if node.type != "for_statement" or node.start_byte in parallel:
            continue
        update, condition = node.child_by_field_name("update"), node.child_by_field_name("condition")
        if update is not None and update.type == "update_expression" and rng.random() < 0.7:
            name = update.child_by_field_name("argument").text.decode()
            edits.append((update.start_byte, update.end_byte, f"{name} = 1 + {name}"))
        if condition is not None and condition.type == "binary_expression" and rng.random() < 0.7:
            left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
            if condition.child_by_field_name("operator").text == b"<":
                edits.append(
                    (condition.start_byte, condition.end_byte, f"{right.text.decode()} > {left.text.decode()}")
                )
    text = _edit(text, edits)
    edits = []
    for node in _walk(_tree(text)):
        if node.type == "binary_expression" and node.child_by_field_name("operator").text == b"+":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            simple = all(side.type in ("identifier", "number_literal") or _product(side) for side in (left, right))
            if simple and rng.random() < 0.5:
                edits.append((node.start_byte, node.end_byte, f"{right.text.decode()} + {left.text.decode()}"))
    return _edit(text, edits)


def _pointers(text: str, rng: np.random.Generator) -> str:
    """``a[i]`` as ``*(a + i)``, one at a time since they nest."""
    for _ in range(200):
        found = [node for node in _walk(_tree(text)) if node.type == "subscript_expression"]
        if not found:
            break
        node = found[-1]
        base, index = node.child_by_field_name("argument"), node.child_by_field_name("indices")
        new = f"(*({base.text.decode()} + ({index.text.decode()[1:-1]})))"
        text = _edit(text, [(node.start_byte, node.end_byte, new)])
    return text


def _product(node: Node) -> bool:
    return bool(node.type == "binary_expression" and node.child_by_field_name("operator").text == b"*")


def _pragma_loops(text: str) -> set[int]:
    """Where loops start that a pragma is about: they must stay in canonical form, nested ones too."""
    starts: set[int] = set()
    for node in _walk(_tree(text)):
        unrolled = node.type == "preproc_call" and b"GCC" in node.text
        if unrolled or (node.type == "preproc_call" and b"omp" in node.text and b" for" in node.text):
            count = re.search(rb"collapse\((\d+)\)", node.text)
            loop = node.next_sibling
            while loop is not None and loop.type == "comment":
                loop = loop.next_sibling
            for _ in range(int(count.group(1)) if count else 1):
                if loop is not None and loop.type == "compound_statement":
                    loop = next((c for c in loop.children if c.type == "for_statement"), None)
                if loop is None or loop.type != "for_statement":
                    break
                starts.add(loop.start_byte)
                loop = loop.child_by_field_name("body")
    return starts


def _whiles(text: str, rng: np.random.Generator) -> str:
    """Every for loop that may be becomes a while loop, innermost last so that offsets stay right."""
    done: set[int] = set()
    while True:
        parallel = _pragma_loops(text)
        loops = [
            node for node in _walk(_tree(text))
            if node.type == "for_statement" and node.start_byte not in parallel and b"continue" not in node.text
            and all(node.child_by_field_name(field) is not None for field in ("initializer", "condition", "update"))
        ]  # fmt: skip
        if not loops or len(done) > 200:
            return text
        node = loops[-1]
        done.add(len(done))
        start, condition, update, body = (
            node.child_by_field_name(field).text.decode() for field in ("initializer", "condition", "update", "body")
        )
        new = f"{{ {start.rstrip(';')}; while ({condition}) {{ {body} {update}; }} }}"
        text = _edit(text, [(node.start_byte, node.end_byte, new)])


def _reorder(text: str, rng: np.random.Generator) -> str:
    """Neighbouring declarations that do not mention one another change places."""
    edits = []
    for block in _walk(_tree(text)):
        if block.type != "compound_statement":
            continue
        children, at = block.named_children, 0
        while at + 1 < len(children):
            one, two = children[at], children[at + 1]
            if one.type == two.type == "declaration" and _independent(one, two):
                edits.append((one.start_byte, two.end_byte, f"{two.text.decode()}\n{one.text.decode()}"))
                at += 1
            at += 1
    outer = [e for e in edits if not any(o[0] <= e[0] and e[1] <= o[1] and o != e for o in edits)]
    return _edit(text, outer)


def _independent(one: Node, two: Node) -> bool:
    def names(node: Node) -> set[str]:
        return {n.text.decode() for n in _walk(node) if n.type == "identifier"}

    def declared(node: Node) -> set[str]:
        found = set()
        for part in node.children_by_field_name("declarator"):
            while part is not None and part.type != "identifier":
                part = part.child_by_field_name("declarator")
            if part is not None:
                found.add(part.text.decode())
        return found

    takes = b".take" in one.text or b".take" in two.text or (b"(" in one.text and b"(" in two.text)
    return not takes and not declared(one) & names(two) and not declared(two) & names(one)
