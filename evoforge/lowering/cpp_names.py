"""Names and sizes in a rendered kernel: axes collapsed to loops, variables, pointers."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from evoforge.lowering.domain import Access, Domain, Node, Size

__all__ = ["Group", "Names", "collapse", "order_axes", "wide"]

Group = tuple[str, ...]
"""Neighbouring axes that one loop walks, slowest first."""

_RESERVED = {
    "and", "or", "not", "xor", "float", "double", "int", "bool", "auto", "do", "new", "this", "u", "n", "p", "k", "at",
    "call", "evo", "whole", "aligned", "pieces", "row", "rows", "col", "cols", "min", "max", "chunk", "tile", "panel",
    "block", "line", "lines", "step", "steps", "batch", "batches", "group", "groups", "part", "parts", "slab", "slabs",
    "plane", "planes", "volume", "volumes", "before", "so_far", "r", "band", "tiles", "first", "last", "depth", "end",
    "before_it", "total", "unit", "vector", "row_block", "batch_block", "group_block", "lower", "upper", "turn",
    "width", "tall",
}  # fmt: skip


def order_axes(domain: Domain, axes: Iterable[str], accesses: Sequence[Access]) -> list[str]:
    """Slowest first, judged by the access over most elements."""
    names = set(axes)

    def weight(access: Access) -> tuple[int, int]:
        own = [name for name in access.axes if name in names]
        return len(own), domain.numel(own).first

    linear = [access for access in accesses if access.terms]
    order: dict[str, int] = {}
    for access in sorted(linear, key=weight, reverse=True):
        for name, size in access.terms or ():
            order.setdefault(name, size.first)
    return sorted(names, key=lambda name: (-order.get(name, 1 << 60), name))


def collapse(domain: Domain, axes: Sequence[str], accesses: Iterable[Access], apart: set[str]) -> list[Group]:
    """Joins neighbours that every access walks as one axis; axes in `apart` stay alone."""
    groups: list[list[str]] = []
    tables = [dict(access.terms) for access in accesses if access.terms is not None]
    for name in axes:
        joined = bool(groups) and name not in apart and groups[-1][-1] not in apart
        if joined:
            before, extent = groups[-1][-1], domain.extents[name].values
            for table in tables:
                a, b = table.get(before), table.get(name)
                if a is None and b is None:
                    continue
                if (
                    a is None
                    or b is None
                    or any(x != y * e for x, y, e in zip(a.values, b.values, extent, strict=True))
                ):
                    joined = False
                    break
        if joined:
            groups[-1].append(name)
        else:
            groups.append([name])
    return [tuple(group) for group in groups]


def wide(text: str, most: float) -> str:
    """A product of sizes whose literals are no `int`s if it comes to more than fits these."""
    return re.sub(r"EVO_SIZE\(\w+, \d+\)", r"int64_t(\g<0>)", text) if most >= 1 << 31 else text


class Names:
    """Hands out names that do not clash, and remembers the constants that sizes become."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.sizes: dict[tuple[str, ...], str] = {}
        self.used: set[str] = set(_RESERVED)
        self.values: dict[str, str] = {}
        self._texts: dict[tuple[tuple[str, ...], int], str] = {}  # by factors and how many sizes had names

    def size(self, group: Sequence[str], wanted: str) -> str:
        """The constant that holds how many steps a loop over `group` takes."""
        key = tuple(sorted(group))
        if key not in self.sizes:
            name, number = wanted, 2
            while name in self.sizes.values():
                name, number = f"{wanted}{number}", number + 1
            self.sizes[key] = name
        return self.sizes[key]

    def text(self, size: Size) -> str:
        """A product of sizes, by the constants where they fit; empty for 1."""
        key = size.factors, len(self.sizes)
        if key not in self._texts:
            self._texts[key] = self._text(size)
        return self._texts[key]

    def _text(self, size: Size) -> str:
        left = Counter(size.factors)
        parts: list[str] = []
        for key, name in sorted(self.sizes.items(), key=lambda item: -len(item[0])):
            need = Counter(key)
            while all(left[axis] >= count for axis, count in need.items()):
                left -= need
                parts.append(name)
        for factor in left.elements():
            shape = self.domain.shapes.get(factor)
            parts.append(shape.factors[0] if shape else factor)
        return wide(" * ".join(sorted(parts, key=lambda part: not part.lstrip("-").isdigit())), max(size.values))

    def definitions(self) -> list[str]:
        """``rows = EVO_SIZE(in0, 0)`` for every constant."""
        made = []
        for key, name in self.sizes.items():
            factors = sorted(self.domain.shapes[axis].factors[0] for axis in key)
            made.append(f"{name} = {wide(' * '.join(factors) or '1', max(self.domain.numel(key).values))}")
        return made

    def of(self, node: Node) -> str:
        """A variable for a stage's value, after the operator it came from."""
        if node.name not in self.values:
            self.values[node.name] = self.fresh(node.name)
        return self.values[node.name]

    def fresh(self, wanted: str) -> str:
        words = [word for word in re.sub(r"\W", "_", wanted).lower().split("_") if word]
        while len("_".join(words)) > 20 and len(words) > 1:
            words.pop(0)
        base = "_".join(words)[:24] or "value"
        if not base[0].isalpha() or keyword.iskeyword(base):
            base = f"v_{base}"
        name, number = base, 2
        while name in self.used:
            name = f"{base}_{number}" if base not in _RESERVED or number > 2 else f"{base}_"
            number += 1
        self.used.add(name)
        return name
