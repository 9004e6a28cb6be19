"""Graph → plain C++, one scalar loop nest per stage: the yardstick that covers every operator.

No schedule, no vectors, no threads. Temporaries lie in the workspace; sums and products accumulate
in double, so that the result's error is that of the operators alone.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from evoforge.core import DTYPES
from evoforge.lowering.index import offset
from evoforge.lowering.ir import (
    Affine,
    Axis,
    Cast,
    Const,
    Expr,
    FloorDiv,
    Graph,
    Guard,
    Indirect,
    Load,
    Mod,
    Op,
    Position,
    Stage,
    Tensor,
    Where,
)
from evoforge.lowering.stages import dtype_of, else_value, extents_of
from tests.lowering.naive_ops import STORED, VALUE, literal, monoid_step, operation

__all__ = ["print_naive"]

_WHOLE = ("i8", "u8", "i16", "i32", "i64")
_PROLOGUE = """\
#include "evoforge.h"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace naive {
inline int64_t floordiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
inline int64_t mod(int64_t a, int64_t b) { return a - b * floordiv(a, b); }
template <class T>
inline T maximum(T a, T b) { return a > b || a != a ? a : b; }
template <class T>
inline T minimum(T a, T b) { return a < b || a != a ? a : b; }
inline double log_sum(double a, double b) {
    const double gap = a == b ? 0 : a - b;
    return maximum(a, b) + std::log1p(std::exp(-std::fabs(gap)));
}
template <class T>
inline T modulo(T a, T b) {
    const T r = std::fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T>
inline T floor_quotient(T a, T b) {  // the quotient that goes with modulo, corrected for rounding
    if (b == 0) return a / b;
    const T r = std::fmod(a, b);
    T q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    if (q == 0) return std::copysign(T(0), a / b);
    const T down = std::floor(q);
    return q - down > T(0.5) ? down + 1 : down;
}
inline int64_t power(int64_t a, int64_t b) {
    int64_t result = 1;
    for (; b > 0; --b) result *= a;
    return result;
}
inline bool is(const evo_tensor& t, int dtype, std::initializer_list<int64_t> size,
               std::initializer_list<int64_t> stride) {
    if (t.dtype != dtype || t.rank != (int)size.size()) return false;
    for (int d = 0; d < t.rank; ++d)
        if (t.size[d] != size.begin()[d] || (t.size[d] > 1 && t.stride[d] != stride.begin()[d])) return false;
    return true;
}
}  // namespace naive
"""


def print_naive(graph: Graph) -> str:
    """Complete C++ source of a kernel for exactly the graph's sizes, strides and dtypes."""
    places, total = _workspace(graph)
    lines = [f'extern "C" int64_t evo_workspace(const evo_call*) {{ return {total}; }}', ""]
    lines += ['extern "C" int evo_run(const evo_call* call) {']
    lines += ["    " + line for line in _checks(graph, total)]
    lines += ["    " + line for line in _pointers(graph, places)]
    for stage in graph.stages:
        lines += ["", *("    " + line for line in _StagePrinter(graph, stage).lines())]
    lines += ["    return 0;", "}", ""]
    return _PROLOGUE + "\n" + "\n".join(lines)


def _workspace(graph: Graph) -> tuple[dict[str, int], int]:
    places, total = {}, 0
    for tensor in graph.tensors.values():
        if tensor.kind == "tmp":
            places[tensor.name] = total
            total += -(-tensor.numel * DTYPES[tensor.dtype] // 64) * 64
    return places, total


def _fields(name: str) -> str:
    kind = name.rstrip("0123456789")
    return f"{kind}[{name.removeprefix(kind)}]"


def _braces(numbers: Sequence[int]) -> str:
    return "{" + ", ".join(str(number) for number in numbers) + "}"


def _checks(graph: Graph, workspace_bytes: int) -> list[str]:
    """Outside the domain, nothing is written and 1 is returned."""
    codes = list(DTYPES)
    lines = []
    for kind in ("in", "cst", "out"):
        for name in graph.names(kind):
            t = graph.tensors[name]
            expected = f"{codes.index(t.dtype)}, {_braces(t.shape)}, {_braces(t.stride)}"
            lines.append(f"if (!naive::is(call->{_fields(name)}, {expected})) return 1;")
    if workspace_bytes:
        lines.append(f"if (call->ws_bytes < {workspace_bytes}) return 2;")
    return lines


def _pointers(graph: Graph, places: dict[str, int]) -> list[str]:
    lines = []
    for t in graph.tensors.values():
        stored = STORED[t.dtype]
        if t.kind == "tmp":
            lines.append(f"{stored}* {t.name} = ({stored}*)((char*)call->ws + {places[t.name]});")
        else:
            const = "" if t.kind == "out" else "const "
            lines.append(
                f"[[maybe_unused]] {const}{stored}* {t.name} = ({const}{stored}*)call->{_fields(t.name)}.data;"
            )
    return lines


def _parenthesised(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


@dataclass
class _StagePrinter:
    """Prints one stage. Every distinct subexpression gets a variable in the innermost loop."""

    graph: Graph
    stage: Stage
    body: list[str] = field(default_factory=list)
    known: dict[Expr, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        stage = self.stage
        value = self.value(stage.body)
        kind = f"{stage.kind} {stage.monoid}" if stage.monoid else stage.kind
        made = [f"// {stage.name}: {kind}" + (f" ({stage.origin})" if stage.origin else ""), "{"]
        if stage.kind == "map":
            inner = [*self.body, self.store(0, value)]
        elif stage.kind == "reduce":
            inner = self.reduce(value)
        else:
            inner = self.scan(value)
        made += _indent(_loops(stage.axes, inner))
        return [*made, "}"]

    # reductions

    def reduce(self, value: str) -> list[str]:
        monoid = str(self.stage.monoid)
        dtype = dtype_of(self.stage.body, self.graph.tensors)
        if monoid in ("argmax", "argmin"):
            return self.arg_reduce(value, ">" if monoid == "argmax" else "<", dtype)
        if monoid == "welford":
            count = math.prod(a.extent for a in self.stage.reduction)
            first = ["double mean = 0;", *self.sweep(f"mean += {value};"), f"mean /= {count};"]
            square = f"squares += ({value} - mean) * ({value} - mean);"
            second = ["double squares = 0;", *self.sweep(square)]
            return [*first, *second, *self.stores("mean", "squares")]
        if monoid == "maxsum":
            first = self.accumulate("max", value, dtype, "best")
            second = ["double total = 0;", *self.sweep(f"total += std::exp(double({value}) - double(best));")]
            return [*first, *second, *self.stores("best", "total")]
        return [*self.accumulate(monoid, value, dtype, "acc"), *self.stores("acc")]

    def accumulate(self, monoid: str, value: str, dtype: str, name: str) -> list[str]:
        start, step = monoid_step(monoid, dtype, name, value)
        return [start, *self.sweep(step)]

    def arg_reduce(self, value: str, better: str, dtype: str) -> list[str]:
        lines = [f"{VALUE[dtype]} best{{}};", "int64_t where = -1, at = 0;"]
        nan = f" || ({value} != {value} && best == best)" if dtype.startswith(("f", "b")) and dtype != "bool" else ""
        step = f"if (where < 0 || {value} {better} best{nan}) {{ best = {value}; where = at; }}"
        return [*lines, *self.sweep(step, "++at;"), *self.stores("best", "where")]

    def sweep(self, *steps: str) -> list[str]:
        return _loops(self.stage.reduction, [*self.body, *steps])

    def scan(self, value: str) -> list[str]:
        dtype = dtype_of(self.stage.body, self.graph.tensors)
        start, step = monoid_step(str(self.stage.monoid), dtype, "acc", value)
        return [start, *_loops(self.stage.reduction, [*self.body, step, self.store(0, "acc")])]

    # memory

    def stores(self, *values: str) -> list[str]:
        return [self.store(at, value) for at, value in enumerate(values) if self.stage.outputs[at]]

    def store(self, at: int, value: str) -> str:
        name = self.stage.outputs[at]
        assert name is not None
        target = self.graph.tensors[name]
        order = self.stage.order or tuple(a.name for a in self.stage.axes)
        place = self.address(target, tuple(Affine(((1, one),)) for one in order))
        return f"{name}[{place}] = ({STORED[target.dtype]}){value};"

    def address(self, tensor: Tensor, index: Sequence[Affine]) -> str:
        return self.affine(offset(index, tensor.stride, extents_of(self.stage)))

    # indices

    def affine(self, a: Affine) -> str:
        parts = []
        for factor, atom in a.terms:
            text = self.atom(atom)
            parts.append(text if factor == 1 else f"{factor} * {_parenthesised(text)}")
        if a.const or not parts:
            parts.append(str(a.const))
        return " + ".join(parts).replace("+ -", "- ")

    def atom(self, atom: str | FloorDiv | Mod | Indirect) -> str:
        if isinstance(atom, str):
            return atom
        if isinstance(atom, Indirect):
            return f"(int64_t){self.value(atom.value)}"
        name = "floordiv" if isinstance(atom, FloorDiv) else "mod"
        return f"naive::{name}({self.affine(atom.arg)}, {atom.by})"

    def guard(self, guard: Guard) -> str:
        if guard.kind == "divides":
            return f"({self.affine(guard.arg)}) % {guard.modulus} == 0"
        return f"{self.affine(guard.arg)} >= 0"

    # expressions

    def value(self, expr: Expr) -> str:
        """The name of a variable that holds `expr`; constants stand for themselves."""
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype)
        if expr not in self.known:
            text = self.formula(expr)
            name = f"v{len(self.known)}"
            dtype = VALUE[dtype_of(expr, self.graph.tensors)]
            self.body.append(f"const {dtype} {name} = {text};")
            self.known[expr] = name
        return self.known[expr]

    def formula(self, expr: Expr) -> str:
        if isinstance(expr, Load):
            tensor = self.graph.tensors[expr.tensor]
            element = f"{expr.tensor}[{self.address(tensor, expr.index)}]"
            if not expr.guards:
                return element
            holds = " && ".join(self.guard(guard) for guard in expr.guards)
            other = literal(else_value(expr.other, tensor.dtype), tensor.dtype)
            return f"{holds} ? {element} : {other}"
        if isinstance(expr, Position):
            return f"({VALUE[expr.dtype]})({self.affine(expr.index)})"
        if isinstance(expr, Cast):
            arg = self.value(expr.arg)
            if expr.dtype == "bool":
                return f"{arg} != 0"
            if expr.dtype in _WHOLE and dtype_of(expr.arg, self.graph.tensors) in ("f32", "f64"):
                return f"evo::whole<{VALUE[expr.dtype]}>({arg})"
            via = "(float)" if expr.dtype in ("f16", "bf16") else ""
            return f"({VALUE[expr.dtype]}){via}{arg}"
        if isinstance(expr, Where):
            return f"{self.value(expr.condition)} ? {self.value(expr.then)} : {self.value(expr.other)}"
        assert isinstance(expr, Op)
        args = [self.value(arg) for arg in expr.args]
        return operation(expr, args, VALUE[expr.dtype], dtype_of(expr.args[0], self.graph.tensors))


def _indent(lines: Sequence[str]) -> list[str]:
    return [textwrap.indent(line, "    ") for line in lines]


def _loops(axes: Sequence[Axis], inner: Sequence[str]) -> list[str]:
    """`inner` inside one loop per axis; no axes give a bare block."""
    if not axes:
        return ["{", *_indent(inner), "}"]
    lines = list(inner)
    for a in reversed(axes):
        head = f"int64_t {a.name} = 0; {a.name} < {a.extent}; ++{a.name}"
        lines = [f"for ({head}) {{", *_indent(lines), "}"]
    return lines
