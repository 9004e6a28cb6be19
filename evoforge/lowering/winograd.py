"""Convolutions with three taps along an axis, in fewer products (minimal filtering).

    y = Aᵀ ((G w) · (Bᵀ x))        m outputs beside one another in m + 2 products instead of 3 m

(Winograd 1980; Lavin and Gray 2016, arXiv 1509.09308). Along one axis alone and not along that of the vectors: what
is read stays contiguous, half of the products go where the axis is a multiple of 4 (a third where it is even), and
errors stay near those of the plain sum, while both axes at once lose two digits. A convolution becomes four stages:
the taps' points, the input's points, their products summed as before, and the outputs made of these sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evoforge.lowering.index import axis, const, floordiv, mod, names, scale, substitute
from evoforge.lowering.ir import Affine, Axis, Const, Expr, Graph, Guard, Load, Op, Position, Stage, Tensor, Where
from evoforge.lowering.split import split_axes
from evoforge.lowering.stages import extents_of, row_major

__all__ = ["winograd"]

_TAPS = 3
_ENOUGH = 32
"""Products per input and per filter value from which making their points pays."""


@dataclass(frozen=True)
class _Filter:
    """The matrices of m outputs at m + 2 points: `outputs` is Aᵀ, `taps` G and `inputs` Bᵀ."""

    outputs: Sequence[Sequence[float]]
    taps: Sequence[Sequence[float]]
    inputs: Sequence[Sequence[float]]


_FILTERS = {
    4: _Filter(
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
        (
            (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
        ),
        (
            (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
        ),
    ),
    2: _Filter(
        ((1, 1, 1, 0), (0, 1, -1, -1)),
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    ),
}  # fmt: skip
"""Outputs beside one another → at the points 0, ±1, (±2,) ∞."""


def winograd(graph: Graph) -> Graph:
    """`graph` with every convolution that it pays for in this form."""
    for name in [stage.name for stage in graph.stages]:
        stage = graph.by_name.get(name)
        found = _find(graph, stage) if stage is not None else None
        if found is not None:
            graph = split_axes(found.applied())
    return graph


def _find(graph: Graph, stage: Stage) -> _Convolution | None:
    body, out = stage.body, stage.outputs[0]
    if not (stage.kind == "reduce" and stage.monoid == "sum" and isinstance(body, Op) and body.name == "mul"):
        return None
    if out is None or {body.dtype, graph.tensors[out].dtype} != {"f32"}:
        return None
    walked = [a for a in stage.axes if a.extent > 1]
    for data, taps in (body.args, body.args[::-1]):
        if not isinstance(data, Load) or data.other != 0 or any(guard.kind != "ge0" for guard in data.guards):
            continue
        for tap in stage.reduction:
            for row in walked[:-1]:
                dim = _sliding(data, row.name, tap.name)
                outputs = next((m for m in sorted(_FILTERS, reverse=True) if row.extent % m == 0), None)
                if tap.extent != _TAPS or dim is None or outputs is None or row.name in names(taps):
                    continue
                found = _Convolution(graph, stage, data, taps, row, tap, dim, outputs)
                if found.pays:
                    return found
    return None


def _sliding(data: Load, row: str, tap: str) -> int | None:
    """The dimension that is read at row + tap + constant, where neither is read anywhere else."""
    using = [dim for dim, index in enumerate(data.index) if {row, tap} & names(index)]
    if len(using) != 1 or set(data.index[using[0]].terms) != {(1, row), (1, tap)}:
        return None
    together = all(not {row, tap} & names(guard) or {row, tap} == names(guard) for guard in data.guards)
    return using[0] if together else None


@dataclass(frozen=True)
class _Convolution:
    """`stage` sums `data` · `taps`; `data` is read at `row` + `tap` in dimension `dim`. `outputs` are made at once."""

    graph: Graph
    stage: Stage
    data: Load
    taps: Expr
    row: Axis
    tap: Axis
    dim: int
    outputs: int

    @property
    def pays(self) -> bool:
        """Whether every point of an input, and of a filter, takes part in many products."""
        own, used = names(self.data), names(self.taps)
        per_input = math.prod(a.extent for a in self.stage.axes if a.name in used - own)
        per_filter = math.prod(a.extent for a in self.stage.axes if a.name in own - used)
        per_output = math.prod(a.extent for a in self.stage.reduction) // _TAPS
        return min(per_input, per_filter, per_output) >= _ENOUGH

    def applied(self) -> Graph:
        taps, data = self._taps(), self._data()
        sums = self._sums(taps, data)
        tensors = dict(self.graph.tensors)
        for stage in (taps, data, sums):
            name, shape = str(stage.outputs[0]), tuple(a.extent for a in stage.axes)
            tensors[name] = Tensor(name, shape, row_major(shape), "f32", "tmp")
        made = (taps, data, sums, self._made(sums))
        stages = [part for one in self.graph.stages for part in (made if one is self.stage else (one,))]
        return Graph(tensors, tuple(stages))

    @property
    def _points(self) -> Axis:
        return Axis("point", self.outputs + 2)

    @property
    def _rows(self) -> Axis:
        """The rows of `outputs` outputs each."""
        return Axis(self.row.name, self.row.extent // self.outputs)

    def _with_points(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        """Points of one row beside one another: what they are made of, and what is made of them, is in the cache."""
        pairs = ((self._rows, self._points) if a.name == self.row.name else (a,) for a in axes)
        return tuple(a for pair in pairs for a in pair)

    def _map(self, what: str, axes: Sequence[Axis], body: Expr) -> Stage:
        out = f"{self.stage.outputs[0]}_{what}"
        return Stage(f"{self.stage.name}_{what}", "map", tuple(axes), body, (out,), origin=self.stage.origin)

    def _taps(self) -> Stage:
        """G w"""
        used = names(self.taps) - {self.tap.name}
        axes = (self._points, *(a for a in (*self.stage.axes, *self.stage.reduction) if a.name in used))
        extents = extents_of(self.stage)

        def tap(k: int) -> Expr:
            value: Expr = substitute(self.taps, {self.tap.name: const(k)}, extents)
            return value

        return self._map("taps", axes, _product(_FILTERS[self.outputs].taps, axis("point"), tap))

    def _data(self) -> Stage:
        """Bᵀ x, of the whole tensor"""
        shape = self.graph.tensors[self.data.tensor].shape
        dims = [self._rows if dim == self.dim else Axis(f"d{dim}", size) for dim, size in enumerate(shape)]
        index = [self.data.index[dim] if dim == self.dim else axis(a.name) for dim, a in enumerate(dims)]
        first = scale(axis(self.row.name), self.outputs)
        load = Load(self.data.tensor, tuple(index), self._guards(True))

        def element(k: int) -> Expr:
            at = {self.row.name: first, self.tap.name: const(k)}
            value: Expr = substitute(load, at, {a.name: a.extent for a in dims})
            return value

        body = _product(_FILTERS[self.outputs].inputs, axis("point"), element)
        return self._map("data", self._with_points(dims), body)

    def _guards(self, sliding: bool) -> tuple[Guard, ...]:
        return tuple(guard for guard in self.data.guards if (self.row.name in names(guard)) == sliding)

    def _sums(self, taps: Stage, data: Stage) -> Stage:
        """(G w) · (Bᵀ x), summed over all but the taps"""
        index = list(self.data.index)
        index[self.dim : self.dim + 1] = [axis(self.row.name), axis("point")]
        wide = Load(str(data.outputs[0]), tuple(index), self._guards(False))
        narrow = Load(str(taps.outputs[0]), tuple(axis(a.name) for a in taps.axes))
        axes, reduction = self._with_points(self.stage.axes), tuple(a for a in self.stage.reduction if a != self.tap)
        body = substitute(Op("mul", (wide, narrow), "f32"), {}, {a.name: a.extent for a in (*axes, *reduction)})
        return replace(
            self.stage, axes=axes, reduction=reduction, body=body, outputs=(f"{self.stage.outputs[0]}_sums",)
        )

    def _made(self, sums: Stage) -> Stage:
        """Aᵀ of the sums: what the convolution wrote"""
        extents, row = extents_of(self.stage), axis(self.row.name)
        quotient, rest = floordiv(row, self.outputs, extents), mod(row, self.outputs, extents)

        def total(k: int) -> Expr:
            places = [(quotient, const(k)) if a == self.row else (axis(a.name),) for a in self.stage.axes]
            load = Load(str(sums.outputs[0]), tuple(index for place in places for index in place))
            value: Expr = substitute(load, {}, extents)
            return value

        body = _product(_FILTERS[self.outputs].outputs, rest, total)
        return replace(self._map("made", self.stage.axes, body), outputs=self.stage.outputs)


def _product(matrix: Sequence[Sequence[float]], row: Affine, element: Callable[[int], Expr]) -> Expr:
    """Row `row` of matrix · elements."""
    rows = [_combined(factors, element) for factors in matrix]
    found = rows[-1]
    for k, value in reversed(list(enumerate(rows[:-1]))):
        found = Where(Op("eq", (Position(row, "i64"), Const(k, "i64")), "bool"), value, found, "f32")
    return found


def _combined(factors: Sequence[float], element: Callable[[int], Expr]) -> Expr:
    """Σ factor · element; ±1 are not multiplied, and what is added comes first."""
    (first, k), *rest = sorted(((f, k) for k, f in enumerate(factors) if f), key=lambda part: part[0] < 0)
    total = _times(first, element(k))
    for factor, k in rest:
        total = Op("add" if factor > 0 else "sub", (total, _times(abs(factor), element(k))), "f32")
    return total


def _times(factor: float, value: Expr) -> Expr:
    return value if factor == 1 else Op("mul", (Const(float(factor), "f32"), value), "f32")
