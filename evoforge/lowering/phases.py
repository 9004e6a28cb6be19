"""Transposed convolutions with strides as ordinary ones, one for each place between two inputs.

    y[s q + p] = Σⱼ w[k(p) + s j] · x[q − d j + e(p)]        for every phase p in [0, s)

An output o with padding c is reached by those taps k only for which s divides o + c − d k: every s-th, where s and the
dilation d have no common divisor. Summed over all taps, s − 1 of s products along an axis are with zeros. (Polyphase
form: Vaidyanathan 1993; of transposed convolutions: Shi et al. 2016, arXiv 1609.07009.) The sums of a phase lie beside
one another, and whoever reads the outputs finds them there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from evoforge.lowering.index import Extents, add, axis, const, floordiv, mod, names, scale, substitute
from evoforge.lowering.ir import Affine, Axis, Cast, Expr, Graph, Guard, Load, Op, Stage, Tensor, rewrite
from evoforge.lowering.stages import extents_of, row_major

__all__ = ["phases"]


@dataclass(frozen=True)
class _Strided:
    """Along axis `out`, with taps along `tap`, dimension `dim` is read at (out + padding − dilation · tap) / stride.

    A phase is named by p = out mod stride where its first tap k(p) and e(p) are linear in p: for strides of two, and
    where the stride divides the padding. Elsewhere it is named by its first tap k itself, whose outputs are those with
    out + padding − dilation · k = stride · quotient.
    """

    out: Axis
    tap: Axis
    dim: int
    size: int
    stride: int
    padding: int
    dilation: int

    @property
    def phase(self) -> Axis:
        return Axis(f"{self.out.name}_phase", self.stride if self._linear else self._step)

    @property
    def quotient(self) -> Axis:
        """The outputs of one phase; in some phases the last are none."""
        if self._linear:
            return Axis(self.out.name, -(-self.out.extent // self.stride))
        return Axis(self.out.name, (self.out.extent - 1 + self.padding) // self.stride - self._least + 1)

    @property
    def taps(self) -> Axis:
        """The taps of one phase; in some phases the last is none."""
        return Axis(self.tap.name, -(-self.tap.extent // self._step))

    @property
    def _common(self) -> int:
        return math.gcd(self.stride, self.dilation)

    @property
    def reaches_all(self) -> bool:
        """Whether every output has a phase."""
        return self._common == 1

    @property
    def _step(self) -> int:
        return self.stride // self._common

    @property
    def _inverse(self) -> int:
        return pow(self.dilation // self._common, -1, self._step)

    @property
    def _least(self) -> int:
        """The smallest quotient of any tap."""
        return -((self.dilation * (self._step - 1) - self.padding) // self.stride)

    @cached_property
    def _linear(self) -> tuple[int, int, int, int] | None:
        """k(0), k(1) − k(0), e(0), e(1) − e(0), if both go on so."""
        if not self.reaches_all:
            return None
        first = [(p + self.padding) * self._inverse % self.stride for p in range(self.stride)]
        between = [(p + self.padding - self.dilation * k) // self.stride for p, k in enumerate(first)]
        slopes = [values[1] - values[0] for values in (first, between)]
        for values, slope in zip((first, between), slopes, strict=True):
            if any(value != values[0] + slope * p for p, value in enumerate(values)):
                return None
        return first[0], slopes[0], between[0], slopes[1]

    @property
    def tapped(self) -> Affine:
        """The tap of `phase` and `taps`."""
        first, slope, _, _ = self._linear or (0, 1, 0, 0)
        return add(const(first), scale(axis(self.phase.name), slope), scale(axis(self.tap.name), self._step))

    @property
    def place(self) -> Affine:
        """The input of `quotient`, `phase` and `taps`."""
        _, _, first, slope = self._linear or (0, 0, self._least, 0)
        back = scale(axis(self.tap.name), -(self.dilation // self._common))
        return add(axis(self.out.name), const(first), scale(axis(self.phase.name), slope), back)

    @property
    def guard(self) -> Guard:
        """Whether there is such a tap."""
        return Guard(add(const(self.tap.extent - 1), scale(self.tapped, -1)))

    def found(self, out: Affine, extents: Extents) -> tuple[list[Affine], list[Guard]]:
        """Phase and quotient of an output, and whether any tap reaches it."""
        if self._linear:
            return [mod(out, self.stride, extents), floordiv(out, self.stride, extents)], []
        at = add(out, const(self.padding))
        first = mod(scale(floordiv(at, self._common, extents), self._inverse), self._step, extents)
        whole = at if self.dilation == 1 else add(at, scale(first, -self.dilation))  # the first tap is the remainder
        quotient = floordiv(whole, self.stride, extents)
        guards = [] if self.reaches_all else [Guard(at, "divides", self._common)]
        return [first, add(quotient, const(-self._least))], guards


def phases(graph: Graph) -> Graph:
    """`graph` with every strided transposed convolution in this form."""
    for name in [stage.name for stage in graph.stages]:
        stage = graph.by_name[name]
        found = _find(graph, stage)
        if found is not None:
            graph = _applied(graph, stage, *found)
    return graph


def _find(graph: Graph, stage: Stage) -> tuple[Load, list[_Strided]] | None:
    """What is read between the inputs, and along which axes."""
    body = stage.body
    if not (stage.kind == "reduce" and stage.monoid == "sum" and isinstance(body, Op) and body.name == "mul"):
        return None
    for data, taps in (body.args, body.args[::-1]):
        read = data.arg if isinstance(data, Cast) else data
        if not isinstance(read, Load) or read.other != 0 or stage.outputs[0] is None:
            continue
        between = [guard for guard in read.guards if guard.kind == "divides"]
        strided = [_strided(graph, stage, read, guard, taps) for guard in between]
        found = [one for one in strided if one is not None]
        if found and len(found) == len(between):
            return read, found
    return None


def _strided(graph: Graph, stage: Stage, data: Load, divides: Guard, taps: Expr) -> _Strided | None:
    """The axes of one guard; None where they are read otherwise than a transposed convolution reads them."""
    factors = {name: factor for factor, name in divides.arg.terms if isinstance(name, str)}
    out = next((a for a in stage.axes if factors.get(a.name) == 1), None)
    tap = next((a for a in stage.reduction if factors.get(a.name, 0) < 0), None)
    if out is None or tap is None or len(divides.arg.terms) != 2:
        return None
    both = {out.name, tap.name}
    index = floordiv(divides.arg, divides.modulus, extents_of(stage))
    dims = [dim for dim, part in enumerate(data.index) if both & names(part)]
    if len(dims) != 1 or data.index[dims[0]] != index or both & names(taps) != {tap.name}:
        return None
    size = graph.tensors[data.tensor].shape[dims[0]]
    past = add(const((size - 1) * divides.modulus), scale(divides.arg, -1))
    known = (divides, Guard(divides.arg), Guard(past))
    if any(both & names(guard) and guard not in known for guard in data.guards):
        return None
    return _Strided(out, tap, dims[0], size, divides.modulus, divides.arg.const, -factors[tap.name])


def _applied(graph: Graph, stage: Stage, data: Load, strided: Sequence[_Strided]) -> Graph:
    by_out, by_tap = {one.out.name: one for one in strided}, {one.tap.name: one for one in strided}
    pairs = [(by_out[a.name].phase, by_out[a.name].quotient) if a.name in by_out else (a,) for a in stage.axes]
    axes = tuple(a for pair in pairs for a in pair)
    reduction = tuple(by_tap[a.name].taps if a.name in by_tap else a for a in stage.reduction)
    name, written = f"{stage.outputs[0]}_phases", graph.tensors[str(stage.outputs[0])]
    body = _summed(stage.body, data, strided, {a.name: a.extent for a in (*axes, *reduction)})
    sums = replace(stage, axes=axes, reduction=reduction, body=body, outputs=(name,), apart=True)
    shape = tuple(a.extent for a in axes)
    tensors = {**graph.tensors, name: Tensor(name, shape, row_major(shape), written.dtype, "tmp")}

    def reread(one: Stage) -> Stage:
        return replace(one, body=_read(one, written.name, name, by_out, stage.axes))

    if written.kind == "tmp" and all(one.reaches_all for one in strided):
        del tensors[written.name]
        return Graph(tensors, tuple(sums if one is stage else reread(one) for one in graph.stages))
    here = Load(written.name, tuple(axis(a.name) for a in stage.axes))
    joined = reread(Stage(f"{stage.name}_joined", "map", stage.axes, here, (written.name,), origin=stage.origin))
    return Graph(tensors, tuple(part for one in graph.stages for part in ((sums, joined) if one is stage else (one,))))


def _summed(body: Expr, data: Load, strided: Sequence[_Strided], extents: Extents) -> Expr:
    """The product of one tap of a phase; where there is none, of zeros."""
    missing = tuple(one.guard for one in strided)

    def moved(node: Any) -> Any:
        if not isinstance(node, Load):
            return node
        if node != data:
            at = {one.tap.name: one.tapped for one in strided}
            there: Load = substitute(node, at, {**extents, **{one.tap.name: one.tap.extent for one in strided}})
            return replace(there, guards=(*there.guards, *missing))
        index, guards = list(node.index), list(node.guards)
        for one in strided:
            guards = [guard for guard in guards if not {one.out.name, one.tap.name} & names(guard)]
            index[one.dim] = one.place
            guards += [Guard(one.place), Guard(add(const(one.size - 1), scale(one.place, -1)))]
        return Load(node.tensor, tuple(index), (*guards, *missing), node.other)

    found: Expr = substitute(rewrite(body, moved), {}, extents)
    return found


def _read(reader: Stage, old: str, new: str, strided: Mapping[str, _Strided], axes: Sequence[Axis]) -> Expr:
    """The body of a stage that reads the outputs, from the sums of their phases."""
    extents = extents_of(reader)

    def visit(node: Any) -> Any:
        if not isinstance(node, Load) or node.tensor != old:
            return node
        index: list[Affine] = []
        guards = list(node.guards)
        for a, at in zip(axes, node.index, strict=True):
            places, reached = strided[a.name].found(at, extents) if a.name in strided else ([at], [])
            index += places
            guards += reached
        return Load(new, tuple(index), tuple(guards), node.other)

    found: Expr = substitute(rewrite(reader.body, visit), {}, extents)
    return found
