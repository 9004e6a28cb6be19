"""Stages that sum an expression along some of its axes; where they are windows of a tensor, a dimension at a time."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from itertools import chain, count

from evoforge.lowering.index import add, axis, const, names, plain_axis, scale, substitute
from evoforge.lowering.ir import Affine, Axis, Expr, FloorDiv, Guard, Load, Stage, Tensor, loads
from evoforge.lowering.stages import row_major

__all__ = ["Sums", "unused"]

Names = frozenset[str]


def unused(name: str, taken: Container[str]) -> str:
    """`name`, with a number behind it where it is taken."""
    return next(one for one in chain([name], (f"{name}_{k}" for k in count())) if one not in taken)


class Sums:
    """New stages and their results, by the names of axes of known `extents`.

    Args:
        tensors: those that are read; results are added.
        called: names for stages.
        origin: of the stages.
    """

    def __init__(self, tensors: dict[str, Tensor], extents: dict[str, int], called: Iterator[str], origin: str) -> None:
        self.tensors, self.stages = tensors, list[Stage]()
        self._extents, self._called, self._origin = extents, called, origin

    def of(self, expr: Expr, summed: Names) -> Expr:
        """An element of the result; `expr` itself where nothing is summed."""
        if isinstance(expr, Load) and not expr.other:
            expr, summed = self._walked(expr, summed)
            while (dim := _apart(expr, summed)) is not None:
                expr = self._along(expr, dim, summed)
        order = _in_order(expr)
        here = [name for name in order if name in summed]
        return self.stage(expr, [name for name in order if name not in summed], here) if here else expr

    def stage(self, body: Expr, axes: list[str], summed: list[str], called: str = "") -> Load:
        """An element of what a new stage makes of `body`."""
        name = called or next(self._called)
        made, shape = unused(f"tmp_{name}", self.tensors), tuple(self._extents[one] for one in axes)
        self.tensors[made] = Tensor(made, shape, row_major(shape), "f32", "tmp")
        over, along = (tuple(Axis(one, self._extents[one]) for one in part) for part in (axes, summed))
        self.stages.append(Stage(name, "reduce", over, body, (made,), along, "sum", origin=self._origin))
        return Load(made, tuple(axis(one) for one in axes))

    def _walked(self, load: Load, summed: Names) -> tuple[Load, Names]:
        """Along the elements that are read instead of their readers, where not every reader finds one."""
        for dim, index in enumerate(load.index):
            arg, by = _quotient(index)
            for name in sorted(summed & names(index)):
                size, rest = self.tensors[load.tensor].shape[dim], add(arg, scale(axis(name), -1))
                mine = [guard for guard in load.guards if name in names(guard)]
                between = Guard(arg, "divides", by)
                known = (Guard(arg), Guard(add(const((size - 1) * by), scale(arg, -1))), between)
                elsewhere = (rest, load.index[:dim], load.index[dim + 1 :])
                if not mine or name in names(elsewhere) or not set(mine) <= set(known) or (by > 1) != (between in mine):
                    continue
                new = unused(f"{name}_read", self._extents)
                self._extents[new] = size
                reader = add(scale(axis(new), by), scale(rest, -1))
                found = Guard(reader), Guard(add(const(self._extents[name] - 1), scale(reader, -1)))
                guards = (*(guard for guard in load.guards if guard not in mine), *found)
                there = replace(load, index=(*load.index[:dim], axis(new), *load.index[dim + 1 :]), guards=guards)
                return self._walked(substitute(there, {}, self._extents), summed - {name} | {new})
        return load, summed

    def _along(self, load: Load, dim: int, summed: Names) -> Load:
        """With the sums along one dimension, whose others are whole."""
        guards, shape = _touching(load, load.index[dim]), self.tensors[load.tensor].shape
        index, back = list(load.index), dict[str, Affine]()
        for other, at in enumerate(load.index):
            if other != dim and (names(at) & summed or not _is_whole(load, at)):
                whole = unused(f"whole{other}", self._extents)
                self._extents[whole], index[other], back[whole] = shape[other], axis(whole), at
        part = Load(load.tensor, tuple(index), guards, load.other)
        order = _in_order(part)
        made = self.stage(part, [name for name in order if name not in summed], [one for one in order if one in summed])
        found: Load = substitute(made, back, self._extents)
        return replace(found, guards=tuple(guard for guard in load.guards if guard not in guards))


def _apart(load: Load, summed: Names) -> int | None:
    """The first dimension that can be summed before windows in another one are looked at."""
    walks = [names((index, _touching(load, index))) & summed for index in load.index]
    if sum(map(len, walks)) > len(frozenset().union(*walks)):
        return None  # what is summed walks several at once
    windows = [not _is_whole(load, index) for index in load.index]
    return next((dim for dim, walk in enumerate(walks) if walk and sum(windows) > windows[dim]), None)


def _is_whole(load: Load, index: Affine) -> bool:
    """Whether an index walks a dimension element by element."""
    return not index.terms or (plain_axis(index) is not None and not _touching(load, index))


def _quotient(index: Affine) -> tuple[Affine, int]:
    """What an index is the quotient of, and by what: itself by 1."""
    if len(index.terms) == 1 and index.const == 0 and index.terms[0][0] == 1:
        atom = index.terms[0][1]
        if isinstance(atom, FloorDiv):
            return atom.arg, atom.by
    return index, 1


def _touching(load: Load, index: Affine) -> tuple[Guard, ...]:
    """The guards that an axis of a dimension has a part in."""
    return tuple(guard for guard in load.guards if names(guard) & names(index))


def _in_order(expr: Expr) -> list[str]:
    """The axes of an expression as they come in what it loads: what lies beside one another last."""
    found: list[str] = []
    for load in loads(expr):
        *parts, last = load.index or (const(0),)
        found += [name for index in parts for name in _named(index)]
        found += [name for name in sorted(names(load.guards)) if name not in names(last)] + _named(last)
    return list(dict.fromkeys([*found, *sorted(names(expr))]))


def _named(index: Affine) -> list[str]:
    return [name for _, atom in index.terms for name in ([atom] if isinstance(atom, str) else sorted(names(atom)))]
