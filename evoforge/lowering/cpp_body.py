"""What stands in loops: values as variables, loads that are shared, accumulators, stores per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from evoforge.lowering.cpp_expr import CTYPES, Context, Value, print_expr
from evoforge.lowering.cpp_layout import Layout, Loop
from evoforge.lowering.cpp_names import Group
from evoforge.lowering.domain import Access, Node
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import Const, Expr, Load, Op, Where, loads, nodes
from evoforge.lowering.lanes import INTS, computed
from evoforge.lowering.nests import Pass
from evoforge.lowering.simplify import dtype_of

__all__ = ["FIELDS", "Body", "ctype_of", "in_brackets", "needed", "reads_of", "short_name"]

_ACCUMULATORS = {
    "sum": "total", "prod": "product", "max": "maximum", "min": "minimum", "argmax": "argmax", "argmin": "argmin",
    "welford": "welford", "maxsum": "maxsum",
}  # fmt: skip
FIELDS = {"argmax": ("value", "at"), "argmin": ("value", "at"), "welford": ("mean", "m2"), "maxsum": ("m", "sum()")}
"""Monoid → where an accumulator keeps its outputs; others have one, `value`."""
_ADDING = ("sum", "welford", "maxsum")
_LONG = 256
"""More terms than this are not added one by one in single precision."""
_FOLD = 128
"""Steps after which a long sum in vectors is folded into another."""


class Body(Layout):
    """Statements of a nest."""

    def w(self, text: str) -> None:
        self.kernel.body.append("    " * self.depth + self.kernel.named(text) if text else "")

    @contextmanager
    def braces(self, head: str, tail: str = "}") -> Iterator[None]:
        self.w(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.w(tail)

    @contextmanager
    def loops(self, heads: Sequence[str]) -> Iterator[None]:
        """Nested loops, each the only statement of the one before; the last opens a brace."""
        before = self.depth
        for head in heads[:-1]:
            self.w(head)
            self.depth += not head.startswith("#")
        if heads:
            with self.braces(heads[-1]):
                yield
        else:
            yield
        self.depth = before

    def unroll_heads(self, vector: bool) -> list[str]:
        """The loop over the vectors of one step, unrolled into registers, where there are several."""
        several = vector and self.schedule.unroll
        return ["#pragma GCC unroll 8", "for (int64_t u = 0; u < UNROLL; ++u)"] if several else []

    def pragma(self, nested: int, *, uneven: bool = False) -> None:
        """Of loops that threads share, by turns where these are uneven; inside a chain every thread is alone."""
        if not self.chained:
            self.threads_share(nested, uneven=uneven)

    def threads_share(self, nested: int, *, uneven: bool = False) -> None:
        collapsed = f" collapse({nested})" if nested > 1 else ""
        how = "static, 1" if uneven and self.schedule.omp == "static" else self.schedule.omp
        self.w(f"#pragma omp parallel for{collapsed} num_threads(call->threads) schedule({how})")

    def store_row(self, tensor: str, ctx: Context) -> None:
        dtype = self.domain.tensors[tensor].dtype
        value = self.known[tensor]
        where = ctx.offset(self.written(tensor))
        ctype = CTYPES[dtype]
        plain = value.dtype == dtype or (self.domain.tensors[tensor].kind == "tmp" and value.dtype == computed(dtype))
        self.w(f"{self.pointer(tensor)}[{where}] = {value.text if plain else f'{ctype}({value.text})'};")

    def pointer(self, tensor: str) -> str:
        return self.kernel.pointers[tensor]

    def context(self, loops: Sequence[Loop], vector: bool, one: Pass, lane: Loop | None = None) -> Context:
        pointers = dict(self.kernel.pointers)
        vars_of = {loop.group: loop.var for loop in loops}
        unrolled = vector and self.schedule.unroll
        if lane is not None:
            vars_of[lane.group] = "at" if unrolled else lane.var
        in_rows = {*self.turned, *(tensor for tensor, how in one.reads.items() if how == "row")}
        pointers |= {tensor: self.row_buffers.get(tensor, tensor) for tensor in in_rows}

        def offset(access: Access) -> str:
            if access.tensor in in_rows:
                access = self.in_row(access.tensor)
            return self.offset(access, vars_of)

        def axis(name: str) -> str:
            return next(var for group, var in vars_of.items() if group == (name,))

        lane_name = lane.group[-1] if lane is not None else ""
        return Context(
            vector, lane_name, vars_of[lane.group] if lane else "", self.domain.tensors, pointers, offset, axis,
            known=self.known, reciprocals=self.reciprocals,
        )  # fmt: skip

    def offset(self, access: Access, vars_of: dict[Group, str]) -> str:
        parts = []
        table = dict(access.terms or ())
        private = self.nest.chain is not None and access.tensor in self.nest.chain.private
        for group, var in vars_of.items():
            size = table.get(group[-1])
            if private and group[-1] in self.chained:
                var = f"({var} - lower)"
                size = None if group[-1] in self.chained[:-1] else size
            if size is not None:
                factor = self.names.text(size)
                parts.append(f"{var} * {factor}" if factor else var)
        if access.const or not parts:
            parts.append(str(access.const))
        return " + ".join(parts).replace("+ -", "- ")

    def let(self, node: Node, ctx: Context) -> None:
        """A stage's value as a local variable.

        As fma(a, b, −max) a product may stand above its own maximum, and far from it where a, b are large; and what two
        sums have in common cancels as torch's does only where they are rounded first.
        """
        ctx.node = node
        ranked = bool(self.domain.ranked & set(node.outputs))
        value = print_expr(node.body, replace(ctx, reciprocals={}) if ranked else ctx)
        if isinstance(node.body, Op | Where) and value.dtype == "f32" and self.domain.rounded & set(node.outputs):
            value = Value(f"evo::rounded({value.text})", value.vector, value.dtype)
        if value.vector and value.dtype in INTS and value.dtype != "i32":
            value = Value(f"evo::to_i32({value.text})", True, "i32")
        name = self.names.of(node)
        self.w(f"const {ctype_of(value)} {name} = {value.text};")
        for out in node.outputs:
            if out:
                self.known[out] = Value(name, value.vector, value.dtype)

    def hoist(self, one: Pass, ctx: Context) -> dict[tuple[str, str], Value]:
        """Loads that no inner axis moves become variables before the sweep."""
        outer = {a for loop in self.rows for a in loop.group}
        found = self.hoisted
        for node in one.nodes:
            ctx.node = node
            for load in loads(node.body):
                access = node.accesses.get(load)
                if access is None or access.terms is None or load.guards or not access.axes <= outer or not outer:
                    continue
                if one.reads.get(access.tensor, "memory") != "memory" or node.kind == "":
                    continue
                key = (access.tensor, ctx.offset(access))
                if key not in found:
                    producer = self.domain.producer(access.tensor)
                    value = print_expr(load, ctx)
                    single = producer is not None and len(producer.outputs) == 1
                    name = self.names.of(producer) if producer is not None and single else ""
                    if not name or name in {value.text for value in found.values()}:  # read at another place, too
                        name = self.names.fresh(name or short_name(access.tensor))
                    self.w(f"const {ctype_of(value)} {name} = {value.text};")
                    found[key] = Value(name, False, value.dtype)
        return found

    def reciprocals_of(self, one: Pass, ctx: Context) -> None:
        """What whole vectors are divided by becomes a reciprocal before the sweep."""
        if not self.schedule.reciprocal:
            return
        for node in one.nodes:
            ctx.node = node
            divisions = [part for part in nodes(node.body) if isinstance(part, Op) and part.name == "div"]
            for by in (division.args[1] for division in divisions if ctx.lane in axes_of(division.args[0])):
                value = self.before_sweep(by, ctx)
                if value is None or value.vector or value.dtype != "f32" or value.text in self.reciprocals:
                    continue
                if isinstance(by, Const):
                    self.reciprocals[value.text] = f"(1.f / {value.text})"
                    continue
                name = self.names.fresh(f"per_{value.text.rpartition('.')[0] or value.text}")
                self.w(f"const float {name} = 1.f / {value.text};")
                self.reciprocals[value.text] = name

    def before_sweep(self, expr: Expr, ctx: Context) -> Value | None:
        """A literal, or what is read where that has a name already."""
        assert ctx.node is not None
        if isinstance(expr, Const):
            return print_expr(expr, ctx)
        if not isinstance(expr, Load):
            return None
        access = ctx.node.accesses.get(expr)
        if expr.tensor in self.known or access is None or access.terms is None or expr.guards:
            return self.known.get(expr.tensor)
        return ctx.shared.get((expr.tensor, ctx.offset(access)))

    def accumulator(self, node: Node, vector: bool) -> str:
        """The C++ type that reduces a stage."""
        dtype = computed(dtype_of(node.body, self.domain.tensors))
        lanes = "evo::vec" if dtype == "f32" else "evo::ivec"
        element = "int64_t" if dtype == "bool" else "double" if self.in_double(node, vector) else CTYPES[dtype]
        return f"evo::{_ACCUMULATORS[node.monoid or '']}<{lanes if vector else element}>"

    def in_double(self, node: Node, vector: bool) -> bool:
        """Whether a stage adds up, by scalars, more floats than floats are accurate for."""
        return not vector and self._is_long(node, 1)

    def _is_long(self, node: Node, lanes: int) -> bool:
        """Whether a stage adds up many floats one by one, in each of so many lanes."""
        adds = node.monoid in _ADDING and computed(dtype_of(node.body, self.domain.tensors)) == "f32"
        return adds and max(self.domain.numel(node.reduction).values) > _LONG * lanes

    def declare(self, one: Pass, vector: bool) -> dict[str, str]:
        made = {}
        for node in one.reduces:
            many = vector and self.schedule.unroll
            name = self.names.fresh(f"{self.names.of(node)}_acc")
            if many:
                self.unroll_parameter()
            long = vector and self._is_long(node, 1 if self.nest.columns else self.lanes)
            declared = (name, f"{name}_folded") if long else (name,)
            each = "[UNROLL]" if many else ""
            self.w(f"{self.accumulator(node, vector)} {', '.join(f'{one}{each}' for one in declared)};")
            made[node.name] = name
            self.accumulated[node.name] = f"{name}[u]" if many else name
            if long:
                self.long.append(name)
        if self.long:
            self.pushes = self.names.fresh("pushes")
            self.w(f"int64_t {self.pushes} = 0;")
        return made

    def step_done(self) -> None:
        """At the end of a step of the lanes: every so often, long sums are folded."""
        if self.long:
            folds = ", ".join(f"evo::fold({name}, {name}_folded)" for name in self.long)
            self.w(f"if (++{self.pushes} % {_FOLD} == 0) {folds};")

    def sums_done(self) -> None:
        """At the end of a pass: the parts of long sums come together."""
        for name in self.long:
            self.w(f"evo::fold({name}_folded, {name});")
        self.long.clear()

    def unroll_parameter(self) -> None:
        self.kernel.parameter("UNROLL", (2, 4, 8), 4)

    def result(self, node: Node, joined: str, vector: bool) -> None:
        """A reduction's results, from its accumulator, which had lanes or not."""
        fields = FIELDS.get(node.monoid or "", ("value",))
        name = self.names.of(node)
        dtype = computed(dtype_of(node.body, self.domain.tensors))
        double = self.in_double(node, vector)
        if len(fields) == 1:
            self.w(f"const {'float' if double else 'auto'} {name} = {joined}.value;")
            texts = [name]
        else:
            self.w(f"const auto {name} = {joined};")
            texts = [f"float({name}.{one})" if double else f"{name}.{one}" for one in fields]
        self.known_results(node, texts, dtype, False)

    def known_results(self, node: Node, texts: Sequence[str], dtype: str, vector: bool) -> None:
        for position, (out, text) in enumerate(zip(node.outputs, texts, strict=True)):
            if out:
                at = node.monoid in ("argmax", "argmin") and position == 1
                self.known[out] = Value(text, vector, ("i32" if vector else "i64") if at else dtype)

    # sweeps


def needed(tensors: Iterable[str], maps: Sequence[Node]) -> list[Node]:
    """Those of `maps` that have to run where `tensors` are wanted, in order."""
    wanted = set(tensors)
    found: list[Node] = []
    for node in reversed(maps):
        if wanted & set(node.outputs) and node not in found:
            found.insert(0, node)
            wanted |= {access.tensor for access in node.reads()}
    return found


def reads_of(readers: Iterable[Node]) -> set[str]:
    return {access.tensor for node in readers for access in node.reads()}


def in_lanes(value: Value) -> str:
    """A value as a vector to be stored."""
    if value.vector:
        return value.text
    return f"evo::broadcast({f'evo::to_i32({value.text})' if value.dtype in INTS else value.text})"


def in_brackets(text: str) -> str:
    return f"({text})" if " " in text else text


def ctype_of(value: Value) -> str:
    if value.vector:
        return "evo::ivec" if value.dtype in ("bool", "i32") else "evo::vec"
    return CTYPES[value.dtype]


def short_name(tensor: str) -> str:
    return {"in": "x", "cst": "w", "out": "y"}.get(tensor.rstrip("0123456789"), "t") + tensor.lstrip(
        "abcdefghijklmnopqrstuvwxyz"
    )
