"""The Triton printer: the nests of a plan as Triton kernels, one program per row, sweeps in blocks of columns.

The same regions, passes and expressions as the C++ printer's; what differs is that a program computes every
axis from one flat position, and that lanes which do not take part are masked. Row buffers are tensors here.
Scans are not covered. Follows Tillet, Kung and Cox 2019 (MAPL), and the language of triton-lang.org.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from evoforge.errors import UnsupportedError
from evoforge.lowering.cpp_names import order_axes
from evoforge.lowering.domain import Access, Domain, Node
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import (
    Affine,
    Atom,
    Cast,
    Const,
    Expr,
    FloorDiv,
    Guard,
    Load,
    Mod,
    Op,
    Position,
    Where,
)
from evoforge.lowering.lanes import computed
from evoforge.lowering.nests import Nest, Pass, Plan
from evoforge.lowering.stages import dtype_of

__all__ = ["print_triton"]

_TYPES = {
    "f32": "tl.float32", "f64": "tl.float64", "f16": "tl.float16", "bf16": "tl.bfloat16", "i8": "tl.int8",
    "u8": "tl.uint8", "i16": "tl.int16", "i32": "tl.int32", "i64": "tl.int64", "bool": "tl.int1",
}  # fmt: skip
_TORCH = {
    "f32": "float32", "f64": "float64", "f16": "float32", "bf16": "float32", "i8": "int8", "u8": "uint8",
    "i16": "int16", "i32": "int32", "i64": "int64", "bool": "bool",
}  # fmt: skip
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip
_CALLS = {"abs", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "sin", "cos", "erf", "floor", "ceil", "sigmoid"}
_HELPERS = {"expm1", "log1p", "tanh", "trunc", "sign"}
_WIDEST = 1024

_PROLOGUE = """import torch
import triton
import triton.language as tl


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def expm1(x):  # Kahan: what rounding lost in exp(x) is taken back by the logarithm of what it gave
    u = tl.exp(x)
    return tl.where(u == 1.0, x, tl.where((u < 1e-30) | (u > 1e30), u - 1.0, (u - 1.0) * (x / tl.log(u))))


@triton.jit
def log1p(x):
    u = 1.0 + x
    return tl.where((u == 1.0) | (u == float("inf")), x, tl.log(u) * (x / (u - 1.0)))


@triton.jit
def tanh(x):
    t = expm1(2.0 * tl.minimum(tl.abs(x), 40.0))
    y = t / (t + 2.0)
    return tl.where(x != x, x, tl.where(x < 0.0, -y, y))


@triton.jit
def trunc(x):
    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))


@triton.jit
def sign(x):
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, 0.0))
"""


def print_triton(domain: Domain, plan: Plan) -> str:
    """A Python module with one kernel per nest and ``run(inputs, constants, outputs)``.

    `run` takes sequences of tensors in the ABI's order and writes the outputs. Sizes are baked in.

    Raises:
        UnsupportedError: scans, and operators that Triton has no form of.
    """
    kernels, launches = [], []
    for number, nest in enumerate(plan.nests):
        printer = _Nest(domain, nest, f"nest{number}")
        kernels.append("\n".join(printer.lines()))
        launches.append(printer.launch())
    kept = dict.fromkeys([*plan.memory, *plan.buffers])
    makes = [f"{name} = torch.empty({domain.tensors[name].shape}, dtype=torch.{_TORCH[domain.tensors[name].dtype]}, "
             "device=device)" for name in kept]  # fmt: skip
    given = []
    for kind, group in (("in", "inputs"), ("cst", "constants"), ("out", "outputs")):
        found = [name for name, t in domain.tensors.items() if t.kind == kind]
        given += [f"{name} = {group}[{name.removeprefix(kind)}]" for name in found]
    body = ["device = outputs[0].device", *given, *makes, *launches]
    host = "def run(inputs, constants, outputs):\n" + "\n".join(f"    {line}" for line in body)
    return "\n\n\n".join([_PROLOGUE.rstrip(), *kernels, host]) + "\n"


@dataclass
class _Nest:
    domain: Domain
    nest: Nest
    name: str
    text: list[str] = field(default_factory=list)
    depth: int = 1
    known: dict[str, str] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)
    fresh: int = 0
    widest: int = 1
    block: bool = False
    inner: frozenset[str] = frozenset()
    node: Node | None = None
    one: Pass | None = None

    # loops

    def lines(self) -> list[str]:
        nest = self.nest
        if nest.scans:
            raise UnsupportedError("expected maps and reductions for Triton, got a scan; use the C++ printer")
        accesses = [a for one in nest.passes for node in one.nodes for a in (*node.reads(), node.write)]
        rows = order_axes(self.domain, nest.rows, accesses)
        self.grid = self.extent(rows)
        if nest.reduces:
            self.w("row = tl.program_id(0)")
            self.positions(rows, "row")
        for number, one in enumerate(nest.passes):
            mine = {a for node in one.nodes for a in (*node.axes, *node.reduction)} - set(rows)
            inner = order_axes(self.domain, mine, accesses)
            self.one, self.inner = one, frozenset(inner)
            if number:
                self.w("")
            self.sweep(one, inner)
        arguments = ", ".join([*self.used, "BLOCK: tl.constexpr"])
        return ["@triton.jit", f"def {self.name}({arguments}):", *self.text]

    def launch(self) -> str:
        block = min(_WIDEST, 1 << max(self.widest - 1, 0).bit_length())
        programs = self.grid if self.nest.reduces else -(-self.widest // block)
        # fused into fma(a, b, -max), what was computed twice may stand above its own maximum
        arguments = [*self.used, f"BLOCK={block}", "enable_fp_fusion=False"]
        return f"{self.name}[({programs},)]({', '.join(arguments)})"

    def extent(self, axes: Sequence[str]) -> int:
        return math.prod(self.domain.extents[a].first for a in axes)

    def w(self, line: str) -> None:
        self.text.append("    " * self.depth + line if line else "")

    def positions(self, axes: Sequence[str], flat: str) -> None:
        """Every axis from one flat position over all of them."""
        step = self.extent(axes)
        for place, name in enumerate(axes):
            step //= self.domain.extents[name].first
            text = flat if step == 1 else f"{flat} // {step}"
            self.w(f"{name} = {text if place == 0 else f'{text} % {self.domain.extents[name].first}'}")

    def sweep(self, one: Pass, inner: Sequence[str]) -> None:
        width = self.extent(inner)
        self.widest = max(self.widest, width)
        per_row = one.heads if self.nest.reduces else []  # without reductions there are no rows
        for node in per_row:
            self.let(node)
        for node in one.reduces:
            self.declare(node)
        if one.nodes:
            if self.nest.reduces:
                self.w(f"for start in range(0, {width}, BLOCK):")
                self.depth += 1
                self.w("at = start + tl.arange(0, BLOCK)")
            else:
                self.w("at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
            self.w(f"live = at < {width}")
            self.positions(inner, "at")
            outside, self.block = dict(self.known), True
            for node in (*(n for n in one.heads if n not in per_row), *one.maps):
                self.let(node)
                for tensor, _ in one.stores:
                    if tensor in node.outputs:
                        self.store(tensor, node)
            for node in one.reduces:
                self.push(node)
            self.known, self.block = outside, False
            self.depth -= self.nest.reduces
        for node in one.reduces:
            self.result(node)
        for node in one.row_maps:
            self.let(node)
        for tensor in one.row_stores:
            producer = self.domain.producer(tensor)
            assert producer is not None
            self.store(tensor, producer)

    def let(self, node: Node) -> None:
        self.node = node
        name = self.new()
        self.w(f"{name} = {self.value(node.body)}  # {node.origin or node.name}")
        for out in node.outputs:
            if out:
                self.known[out] = name

    def new(self) -> str:
        self.fresh += 1
        return f"v{self.fresh}"

    # reductions

    def declare(self, node: Node) -> None:
        dtype, name = self.dtype(node), node.name
        made = f"tl.full([BLOCK], {self.start(node)}, {_TYPES[dtype]})"
        if node.monoid == "welford":
            self.w(f"{name}_n, {name}_mean, {name}_m2 = {', '.join(['tl.zeros([BLOCK], tl.float32)'] * 3)}")
        elif node.monoid == "maxsum":
            self.w(f"{name}_m, {name}_s = {made}, tl.zeros([BLOCK], tl.float32)")
        elif node.monoid in ("argmax", "argmin"):
            self.w(f"{name}_best, {name}_at = {made}, tl.full([BLOCK], {1 << 40}, tl.int64)")
        else:
            self.w(f"{name}_acc = {made}")

    def dtype(self, node: Node) -> str:
        found = computed(dtype_of(node.body, self.domain.tensors))
        return "i64" if found == "bool" else found

    def start(self, node: Node) -> str:
        if node.monoid in ("sum", "prod"):
            return "0" if node.monoid == "sum" else "1"
        low = node.monoid in ("max", "argmax", "maxsum")
        dtype = self.dtype(node)
        if dtype in ("f32", "f64"):
            return f"float('{'-' if low else ''}inf')"
        if dtype == "u8":
            return "0" if low else "255"
        top = 1 << int(dtype[1:]) - 1
        return str(-top if low else top - 1)

    def push(self, node: Node) -> None:
        self.node = node
        value, name = self.new(), node.name
        self.w(f"{value} = {self.value(node.body)}  # {node.origin or node.name}")
        if node.monoid == "welford":
            self.w(f"{name}_n += tl.where(live, 1.0, 0.0)")
            self.w(f"{value}d = {value} - {name}_mean")
            self.w(f"{name}_mean = tl.where(live, {name}_mean + {value}d / {name}_n, {name}_mean)")
            self.w(f"{name}_m2 += tl.where(live, {value}d * ({value} - {name}_mean), 0.0)")
        elif node.monoid == "maxsum":
            self.w(f"{value}m = tl.maximum({name}_m, tl.where(live, {value}, float('-inf')))")
            self.w(f"{value}z = {value}m == float('-inf')")
            self.w(
                f"{name}_s = tl.where({value}z, 0.0, {name}_s * tl.exp({name}_m - {value}m) + "
                f"tl.where(live, tl.exp({value} - {value}m), 0.0))"
            )
            self.w(f"{name}_m = {value}m")
        elif node.monoid in ("argmax", "argmin"):
            sign = ">" if node.monoid == "argmax" else "<"
            self.w(f"{value}b = live & (({value} {sign} {name}_best) | ({name}_at == {1 << 40}))")
            self.w(f"{name}_at = tl.where({value}b, {self.flat(node)}, {name}_at)")
            self.w(f"{name}_best = tl.where({value}b, {value}, {name}_best)")
        else:
            masked = f"tl.where(live, {value}, {self.start(node)})"
            if node.monoid in ("max", "min"):
                self.w(f"{name}_acc = {self.extreme(node.monoid, f'{name}_acc', masked)}")
            else:
                self.w(f"{name}_acc = {name}_acc {'+' if node.monoid == 'sum' else '*'} {masked}")

    def flat(self, node: Node) -> str:
        """The position among the reduction's axes."""
        step, parts = 1, []
        for name in reversed(node.reduction):
            parts.append(name if step == 1 else f"{name} * {step}")
            step *= self.domain.extents[name].first
        return " + ".join(reversed(parts)) or "0"

    def result(self, node: Node) -> None:
        name, texts = node.name, []
        if node.monoid == "welford":
            self.w(f"{name}_all = tl.sum({name}_n, 0)")
            self.w(f"{name}_middle = tl.sum({name}_n * {name}_mean, 0) / {name}_all")
            self.w(f"{name}_off = {name}_mean - {name}_middle")
            self.w(f"{name}_squares = tl.sum({name}_m2 + {name}_n * {name}_off * {name}_off, 0)")
            texts = [f"{name}_middle", f"{name}_squares"]
        elif node.monoid == "maxsum":
            self.w(f"{name}_top = tl.max({name}_m, 0)")
            scaled = f"tl.where({name}_m == float('-inf'), 0.0, {name}_s * tl.exp({name}_m - {name}_top))"
            self.w(f"{name}_total = tl.sum({scaled}, 0)")
            texts = [f"{name}_top", f"{name}_total"]
        elif node.monoid in ("argmax", "argmin"):
            self.w(f"{name}_value = tl.{'max' if node.monoid == 'argmax' else 'min'}({name}_best, 0)")
            self.w(f"{name}_where = tl.min(tl.where({name}_best == {name}_value, {name}_at, {1 << 40}), 0)")
            texts = [f"{name}_value", f"{name}_where"]
        else:
            joined = {"sum": "tl.sum({a}, 0)", "max": "tl.max({a}, 0)", "min": "tl.min({a}, 0)",
                      "prod": "tl.reduce({a}, 0, _multiply)"}[str(node.monoid)]  # fmt: skip
            self.w(f"{name}_all = {joined.format(a=f'{name}_acc')}")
            texts = [f"{name}_all"]
        for out, text in zip(node.outputs, texts, strict=True):
            if out:
                self.known[out] = text

    # memory

    def store(self, tensor: str, producer: Node) -> None:
        self.used[tensor] = None
        live = ", mask=live" if self.block else ""
        self.w(f"tl.store({tensor} + {self.offset(producer.write)}, {self.known[tensor]}{live})")

    def offset(self, access: Access) -> str:
        parts = [f"{name} * {size.first}" if size.first != 1 else name for name, size in access.terms or ()]
        if access.const or not parts:
            parts.append(str(access.const))
        return self.spread(" + ".join(parts), access.axes)

    def spread(self, where: str, axes: Set[str]) -> str:
        """An address for every lane of a block, where all lanes have the same one too."""
        return f"{where} + at * 0" if self.block and not axes & self.inner else where

    def load(self, load: Load) -> str:
        assert self.node is not None and self.one is not None
        known = self.known.get(load.tensor)
        if known is not None and not load.guards and self.one.reads.get(load.tensor, "memory") == "local":
            return known
        self.used[load.tensor] = None
        access, tensor = self.node.accesses[load], self.domain.tensors[load.tensor]
        if access.terms is None:
            parts = [
                f"({self.affine(index)}) * {step}" if step != 1 else f"({self.affine(index)})"
                for index, step in zip(load.index, tensor.stride, strict=True)
            ]
            where = self.spread(" + ".join(parts) or "0", axes_of(load.index))
        else:
            where = self.offset(access)
        masks = [*(["live"] if self.block else []), *(f"({self.guard(guard)})" for guard in load.guards)]
        more = f", mask={' & '.join(masks)}, other={self.literal(load.other, tensor.dtype)}" if masks else ""
        cast = ".to(tl.float32)" if tensor.dtype in ("f16", "bf16") else ""
        return f"tl.load({load.tensor} + {where}{more}){cast}"

    def guard(self, guard: Guard) -> str:
        text = self.affine(guard.arg)
        return f"{text} >= 0" if guard.kind == "ge0" else f"({text}) % {guard.modulus} == 0"

    def affine(self, index: Affine) -> str:
        parts = []
        for factor, atom in index.terms:
            text = self.atom(atom)
            parts.append(text if factor == 1 else f"{factor} * {text}")
        if index.const or not parts:
            parts.append(str(index.const))
        return " + ".join(parts)

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, str):
            return atom
        if isinstance(atom, FloorDiv):
            return f"(({self.affine(atom.arg)}) // {atom.by})"
        if isinstance(atom, Mod):
            return f"(({self.affine(atom.arg)}) % {atom.by})"
        return f"({self.value(atom.value)}).to(tl.int64)"

    # expressions

    def value(self, expr: Expr) -> str:
        if isinstance(expr, Const):
            return self.literal(expr.value, expr.dtype)
        if isinstance(expr, Position):
            text = self.affine(expr.index)
            return f"({text}).to({_TYPES[computed(expr.dtype)]})" if expr.index.terms else text
        if isinstance(expr, Load):
            return self.load(expr)
        if isinstance(expr, Cast):
            if isinstance(expr.arg, Const):
                return self.literal(expr.arg.value, expr.dtype)
            inner = self.value(expr.arg)
            return f"({inner} != 0)" if expr.dtype == "bool" else f"({inner}).to({_TYPES[computed(expr.dtype)]})"
        if isinstance(expr, Where):
            return f"tl.where({self.value(expr.condition)}, {self.value(expr.then)}, {self.value(expr.other)})"
        return self.operation(expr)

    def operation(self, op: Op) -> str:
        if op.name == "pow":
            return self.power(op)
        args = [self.value(arg) for arg in op.args]
        if op.name in ("max", "min"):
            return self.extreme(op.name, *args)
        if op.name in _INFIX and not (op.name == "div" and op.dtype not in ("f16", "bf16", "f32", "f64")):
            return f"({args[0]} {_INFIX[op.name]} {args[1]})"
        if op.name in _CALLS:
            return f"tl.{op.name}({args[0]})"
        if op.name in _HELPERS:
            return f"{op.name}({args[0]})"
        kept = _TYPES[computed(op.dtype)]
        simple = {
            "rounded": "{0}", "as_f16": f"({{0}}).to(tl.float16).to({kept})",
            "as_bf16": f"({{0}}).to(tl.bfloat16).to({kept})",
            "neg": "(-{0})", "reciprocal": "(1.0 / {0})", "isnan": "({0} != {0})",
            "isinf": "(tl.abs({0}) == float('inf'))", "tan": "(tl.sin({0}) / tl.cos({0}))",
            "not": "({0} == 0)" if op.dtype == "bool" else "(~{0})",
        }.get(op.name)  # fmt: skip
        if simple is None:
            raise UnsupportedError(f"expected an operator with a Triton form, got {op.name}; use the C++ printer")
        return simple.format(args[0])

    def power(self, op: Op) -> str:
        base, exponent = self.value(op.args[0]), op.args[1]
        power = float(exponent.value) if isinstance(exponent, Const) else None
        if power in (2.0, 3.0):
            return "(" + " * ".join([base] * int(power)) + ")"
        short = {0.5: "tl.sqrt({0})", -0.5: "tl.rsqrt({0})", -1.0: "(1.0 / {0})"}.get(power or 0.0)
        if short is None:
            raise UnsupportedError("expected a power of 2, 3, ±1/2 or -1 for Triton; use the C++ printer")
        return short.format(base)

    def extreme(self, name: str, a: str, b: str) -> str:
        return f"tl.{name}imum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)"

    def literal(self, value: Any, dtype: str) -> str:
        if dtype == "bool":
            return str(bool(value))
        if dtype not in ("f16", "bf16", "f32", "f64"):
            return str(int(value)) if math.isfinite(value) else "0"
        return f"float('{value}')" if not math.isfinite(value) else repr(float(value))
