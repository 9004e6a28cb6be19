"""Graphs as one domain: axes of different stages unified, sizes and strides of all workloads side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from evoforge.errors import UnsupportedError
from evoforge.lowering.domain import Access, Domain, Node, Size
from evoforge.lowering.index import affine, const, offset, plain_axis, substitute
from evoforge.lowering.ir import (
    Affine,
    Cast,
    Const,
    Expr,
    FloorDiv,
    Graph,
    Guard,
    Load,
    Mod,
    Op,
    Position,
    Stage,
    Where,
    loads,
    nodes,
    rewrite,
)  # fmt: skip
from evoforge.lowering.split import split_outputs
from evoforge.lowering.stages import row_major

__all__ = ["build_domain"]


class _Union:
    """Disjoint sets of (stage, axis); a set never holds two axes of one stage."""

    def __init__(self) -> None:
        self.parent: dict[tuple[str, str], tuple[str, str]] = {}
        self.stages: dict[tuple[str, str], set[str]] = {}

    def find(self, key: tuple[str, str]) -> tuple[str, str]:
        self.parent.setdefault(key, key)
        self.stages.setdefault(key, {key[0]})
        while self.parent[key] != key:
            key = self.parent[key]
        return key

    def union(self, a: tuple[str, str], b: tuple[str, str]) -> None:
        a, b = self.find(a), self.find(b)
        if a != b and not self.stages[a] & self.stages[b]:
            self.parent[b] = a
            self.stages[a] |= self.stages[b]


@dataclass
class _Single:
    """One workload's graph, flattened: per stage the kept axes and the body without unit axes."""

    graph: Graph
    bodies: dict[str, Expr]
    extents: dict[str, dict[str, int]]


def _single(graph: Graph) -> _Single:
    graph = split_outputs(graph)
    bodies, extents = {}, {}
    for stage in graph.stages:
        extents[stage.name] = {a.name: a.extent for a in (*stage.axes, *stage.reduction)}
        bodies[stage.name] = substitute(stage.body, {}, extents[stage.name])
    return _Single(graph, bodies, extents)


def _unify(single: _Single) -> _Union:
    union = _Union()
    writers = {out: stage for stage in single.graph.stages for out in stage.outputs if out}
    seen: dict[tuple[str, int], tuple[str, str]] = {}
    for connect_inputs in (False, True):
        for stage in single.graph.stages:
            sizes = single.extents[stage.name]
            for load in loads(single.bodies[stage.name]):
                writer = writers.get(load.tensor)
                if (writer is None) != connect_inputs:
                    continue
                for dim, index in enumerate(load.index):
                    name = plain_axis(index)
                    if name is None or sizes.get(name, 1) == 1:
                        continue
                    if writer is None:
                        if single.graph.tensors[load.tensor].shape[dim] == sizes[name]:
                            other = seen.setdefault((load.tensor, dim), (stage.name, name))
                            union.union(other, (stage.name, name))
                    elif len(written := writer.written) == len(load.index) and written[dim].extent == sizes[name]:
                        union.union((writer.name, written[dim].name), (stage.name, name))
    return union


def build_domain(graphs: Sequence[Graph]) -> Domain:
    """All workloads of one task as one domain.

    Raises:
        UnsupportedError: the workloads differ in more than sizes.
    """
    singles = [_single(graph) for graph in graphs]
    if any(_skeleton(single) != _skeleton(singles[0]) for single in singles[1:]):
        raise _different_structure()
    union = _unify(singles[0])
    names: dict[tuple[str, str], str] = {}
    chosen: dict[tuple[tuple[str, str], tuple[int, ...]], str] = {}  # sizes may be equal in one workload by chance
    values: dict[str, tuple[int, ...]] = {}
    for stage in singles[0].graph.stages:
        for a in (*stage.axes, *stage.reduction):
            row = tuple(_extent(single, stage.name, a.name) for single in singles)
            if max(row) == 1:
                continue
            if min(row) == 1:  # and is left out of indices there
                raise UnsupportedError(
                    f"expected sizes of {stage.origin or stage.name} that are 1 in all workloads or in none, got "
                    f"{', '.join(map(str, row))}; make the workloads separate tasks"
                )
            root = union.find((stage.name, a.name))
            name = chosen.setdefault((root, row), f"a{len(chosen)}")
            values[name] = row
            names[stage.name, a.name] = name
    builder = _Builder(singles, names, values)
    stages = [stage for stage in singles[0].graph.stages if not _idle(stage)]
    nodes = tuple(builder.node(stage) for stage in stages)
    return Domain(
        {t.name: t for t in singles[0].graph.tensors.values()},
        nodes,
        {name: Size((name,), row) for name, row in values.items()},
        len(graphs),
        {name: Size((builder.text(name),), row) for name, row in values.items()},
    )


def _skeleton(single: _Single) -> tuple[Any, ...]:
    """What is computed, and of which types, without sizes, indices and constants."""
    tensors = [(t.name, t.dtype, t.kind, len(t.shape)) for t in single.graph.tensors.values()]
    found: list[Any] = [sorted(tensors)]
    for stage in single.graph.stages:
        found.append((stage.name, stage.kind, stage.monoid, stage.outputs))
        for part in nodes(single.bodies[stage.name]):
            if isinstance(part, Op):
                found.append((part.name, part.dtype, len(part.args)))
            elif isinstance(part, Load):
                found.append((part.tensor, part.other))
            elif isinstance(part, Const | Position | Cast | Where):
                found.append((type(part), part.dtype))
    return tuple(found)


def _idle(stage: Stage) -> bool:
    """Whether a stage copies a tensor onto itself."""
    return isinstance(stage.body, Load) and stage.body.tensor in stage.outputs


def _extent(single: _Single, stage: str, name: str) -> int:
    try:
        return single.extents[stage][name]
    except KeyError:
        raise _different_structure() from None


def _different_structure() -> UnsupportedError:
    return UnsupportedError(
        "expected workloads that differ in sizes only, got graphs of different structure; make them separate tasks"
    )


def _different_places(stage: Stage) -> UnsupportedError:
    return UnsupportedError(
        f"expected indices of {stage.origin or stage.name} that are the same in all workloads, they depend on "
        "sizes (padding, flips, flat positions); make the workloads separate tasks"
    )


def _places(body: Expr) -> list[Any]:
    """What is printed as it stands in the first workload."""
    return [part for part in nodes(body) if isinstance(part, Guard | Position | FloorDiv | Mod)]


class _Builder:
    """Turns stages into nodes, and finds texts for sizes."""

    def __init__(
        self, singles: Sequence[_Single], names: Mapping[tuple[str, str], str], values: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.singles = singles
        self.names = names
        self.values = values
        self.tensors = singles[0].graph.tensors
        self.dims = self._dims()
        self.bodies = [self._without_repeats(single) for single in singles]

    def _without_repeats(self, single: _Single) -> dict[str, Expr]:
        """The bodies, where the one element along a dimension of stride 0 is read at 0, whatever its size."""
        graphs = [other.graph for other in self.singles]

        def repeated(tensor: str, dim: int) -> bool:
            return all(graph.tensors[tensor].stride[dim] == 0 for graph in graphs)

        def visit(part: Any) -> Any:
            if not isinstance(part, Load):
                return part
            index = [const(0) if repeated(part.tensor, dim) else a for dim, a in enumerate(part.index)]
            return replace(part, index=tuple(index))

        return {name: rewrite(body, visit) for name, body in single.bodies.items()}

    def _dims(self) -> dict[tuple[str, int], str]:
        """(tensor, dimension) → the axis that walks it from end to end."""
        found: dict[tuple[str, int], str] = {}
        graph = self.singles[0].graph
        for stage in graph.stages:
            for out in stage.outputs:
                if out and len(stage.written) == len(self.tensors[out].shape):
                    for dim, a in enumerate(stage.written):
                        if (stage.name, a.name) in self.names:
                            found[out, dim] = self.names[stage.name, a.name]
        for stage in graph.stages:
            for load in loads(self.singles[0].bodies[stage.name]):
                for dim, index in enumerate(load.index):
                    name = plain_axis(index)
                    known = self.names.get((stage.name, name or ""))
                    if known and self._row(load.tensor, dim) == self.values[known]:
                        found.setdefault((load.tensor, dim), known)
        return found

    @cached_property
    def _texts(self) -> dict[str, str]:
        """The sizes of axes that some input or output has."""
        found: dict[str, str] = {}
        for (tensor, dim), known in sorted(
            self.dims.items(), key=lambda item: ("in out cst tmp".index(item[0][0][:2]), item[0])
        ):
            if self.tensors[tensor].kind != "tmp":
                found.setdefault(known, f"EVO_SIZE({tensor}, {dim})")
        return found

    def text(self, name: str) -> str:
        """C++ for the size of an axis."""
        if name in self._texts:
            return self._texts[name]
        if len(set(self.values[name])) > 1:
            raise UnsupportedError(
                "expected every size that differs between workloads to be the size of an input or output"
            )
        return str(self.values[name][0])

    def _known(self, name: str) -> str | None:
        try:
            return self.text(name)
        except UnsupportedError:
            return None

    def _row(self, tensor: str, dim: int) -> tuple[int, ...]:
        """How long a dimension is in every workload."""
        return tuple(single.graph.tensors[tensor].shape[dim] for single in self.singles)

    def size(self, tensor: str, dim: int) -> Size:
        row = self._row(tensor, dim)
        if (tensor, dim) in self.dims:
            return Size((self.dims[tensor, dim],), row)
        if self.tensors[tensor].kind == "tmp" or max(row) == 1:
            return Size((str(row[0]),), row)
        return Size((f"EVO_SIZE({tensor}, {dim})",), row)

    def stride(self, tensor: str, dim: int) -> Size:
        """The stride of a dimension as a product of sizes where the tensor is contiguous."""
        steps = Size((), (1,) * len(self.singles))
        row: tuple[int, ...] | None = None
        for single in self.singles:
            t = single.graph.tensors[tensor]
            expected = 1
            for size, step in zip(reversed(t.shape), reversed(t.stride), strict=True):
                if size != 1 and step != expected:
                    row = tuple(s.graph.tensors[tensor].stride[dim] for s in self.singles)
                expected *= size
        if row is not None:
            steps = Size((str(row[0]) if row[0] in (0, 1) else f"EVO_STRIDE({tensor}, {dim})",), row)
        else:
            for later in range(dim + 1, len(self.tensors[tensor].shape)):
                steps = steps * self.size(tensor, later)
        if len({*steps.values}) > 1 and {0, 1} & {*steps.values}:  # which decides what vectors are
            raise UnsupportedError(
                f"expected strides of {tensor} that are 0 or 1 in all workloads or in none, got "
                f"{', '.join(map(str, steps.values))}; make the workloads separate tasks"
            )
        return steps

    def node(self, stage: Stage) -> Node:
        mine = {
            a.name: self.names[stage.name, a.name]
            for a in (*stage.axes, *stage.reduction)
            if (stage.name, a.name) in self.names
        }
        axes = tuple(mine[a.name] for a in stage.written if a.name in mine)
        reduction = tuple(mine[a.name] for a in stage.reduction if a.name in mine)
        every = [list(loads(bodies[stage.name])) for bodies in self.bodies]
        if len({len(row) for row in every}) != 1:
            raise _different_structure()
        places = [_places(bodies[stage.name]) for bodies in self.bodies]
        if any(other != places[0] for other in places):
            raise _different_places(stage)
        accesses = {}
        body = _renamed(self._constants(stage), mine, self.values)
        for position, load in enumerate(every[0]):
            access = self._access([row[position] for row in every], stage, mine)
            accesses[_renamed(load, mine, self.values)] = access
        target = next(out for out in stage.outputs if out)
        kind, monoid = stage.kind, stage.monoid
        if not reduction and monoid in ("sum", "prod", "max", "min", "logsum"):
            kind, monoid = "map", None  # of one element
        return Node(
            stage.name, kind, monoid, axes, reduction, body, stage.outputs, stage.origin, accesses,
            self._write(stage, target, mine), stage.apart,
        )  # fmt: skip

    def _access(self, row: Sequence[Load], stage: Stage, mine: Mapping[str, str]) -> Access:
        load = row[0]
        index = tuple(_renamed(a, mine, self.values) for a in load.index)
        terms: dict[str, Size] = {}
        constant = 0
        flats = []
        for single, one in zip(self.singles, row, strict=True):
            flats.append(offset(one.index, single.graph.tensors[one.tensor].stride, single.extents[stage.name]))
        constants = {flat.const for flat in flats}
        constant = constants.pop()
        if constants or any(not isinstance(atom, str) for flat in flats for _, atom in flat.terms):
            steps = {single.graph.tensors[load.tensor].stride for single in self.singles}
            known = self.tensors[load.tensor].kind != "tmp" or len(steps) == 1
            if not known or any(one.index != load.index for one in row):
                raise _different_places(stage)
            return Access(load.tensor, None, 0, index)
        for atom in dict.fromkeys(str(atom) for flat in flats for _, atom in flat.terms):
            values = tuple({str(a): c for c, a in flat.terms}.get(atom, 0) for flat in flats)
            terms[mine[atom]] = self._coefficient(load, atom, values)
        return Access(load.tensor, tuple(terms.items()), constant, index)

    def _coefficient(self, load: Load, atom: str, values: tuple[int, ...]) -> Size:
        for dim, index in enumerate(load.index):
            inside = next((c for c, a in index.terms if a == atom), 0)
            if inside:
                step = self.stride(load.tensor, dim)
                if tuple(inside * v for v in step.values) == values:
                    return step if inside == 1 else Size((str(inside),), (inside,) * len(values)) * step
        for name, row in self.values.items():
            if row == values and len(set(row)) > 1:
                return Size((name,), values)
        if len(set(values)) > 1:
            raise UnsupportedError(
                f"expected one expression for a stride of {load.tensor} in all workloads, found none"
            )
        return Size(() if values[0] == 1 else (str(values[0]),), values)

    def _write(self, stage: Stage, target: str, mine: Mapping[str, str]) -> Access:
        """Where results go; the axes are the elements of each dimension in order (`split_outputs`)."""
        first = self.tensors[target]
        if any(name and self.tensors[name].stride != first.stride for name in stage.outputs):
            raise UnsupportedError(f"expected the results of {stage.origin or stage.name} in one layout, got several")
        dims = [dim for dim, size in enumerate(first.shape) if size > 1]
        strided = any(t.stride != row_major(t.shape) for t in (s.graph.tensors[target] for s in self.singles))
        terms: list[tuple[str, Size]] = []
        step, left = Size((), (1,) * len(self.singles)), 1
        for a in reversed(stage.written):
            if strided and a.extent > 1:
                if left == 1:
                    step, left = self.stride(target, dims[-1]), first.shape[dims.pop()]
                left //= a.extent
            if a.name in mine:
                terms.append((mine[a.name], step))
                step = step * Size((mine[a.name],), self.values[mine[a.name]])
        return Access(target, tuple(reversed(terms)), 0)

    def _constants(self, stage: Stage) -> Expr:
        """The first workload's body, with constants that differ in the others as products of sizes."""
        body = self.bodies[0][stage.name]
        every = [list(_constants_of(bodies[stage.name])) for bodies in self.bodies]
        if len({len(row) for row in every}) != 1:
            raise _different_structure()
        rows = list(zip(*every, strict=True))
        if all(repr(other.value) == repr(row[0].value) for row in rows for other in row):
            return body
        left = iter(rows)

        def visit(part: Any) -> Any:
            if not isinstance(part, Const):
                return part
            row = next(left)
            if all(repr(other.value) == repr(part.value) for other in row):
                return part
            return Const(part.value, part.dtype, self._product([other.value for other in row], stage))

        found: Expr = rewrite(body, visit)
        return found

    def _product(self, wanted: Sequence[float], stage: Stage) -> str:
        """The fewest sizes whose product is `wanted` in every workload, in C++."""
        named = {name: self._known(name) for name in self.values}
        for count in range(1, 5):
            for names in combinations([name for name, text in named.items() if text], count):
                products = [math.prod(self.values[name][k] for name in names) for k in range(len(wanted))]
                if products == list(wanted):
                    return " * ".join(str(named[name]) for name in names)
        raise UnsupportedError(
            f"expected equal constants of {stage.origin or stage.name} in all workloads, or products of sizes, "
            "they differ; make the workloads separate tasks"
        )


def _constants_of(node: Any) -> list[Const]:
    return [part for part in nodes(node) if isinstance(part, Const)]


def _renamed(node: Any, mine: Mapping[str, str], values: Mapping[str, tuple[int, ...]]) -> Any:
    def visit(part: Any) -> Any:
        if isinstance(part, Affine):
            terms = [(c, mine.get(atom, atom) if isinstance(atom, str) else atom) for c, atom in part.terms]
            return affine(terms, part.const)
        return part

    return rewrite(node, visit)
