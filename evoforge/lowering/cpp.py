"""The C++ printer: a plan becomes one readable source file.

Every extent is a constant made of `EVO_SIZE`, so that the same text builds for other sizes of the
same graph. Ragged ends are masked (`evo::part`), so that any parameter is right for any size.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import Any

from evoforge.core import Parameter, ParameterSpace
from evoforge.errors import UnsupportedError
from evoforge.lowering.cpp_chain import print_chain
from evoforge.lowering.cpp_expr import CTYPES
from evoforge.lowering.cpp_names import Names, wide
from evoforge.lowering.cpp_nest import NestPrinter
from evoforge.lowering.domain import Domain
from evoforge.lowering.interleaved import interleaved
from evoforge.lowering.ir import Tensor
from evoforge.lowering.lanes import computed
from evoforge.lowering.linear import Scope
from evoforge.lowering.nests import Plan
from evoforge.lowering.printed import parsed
from evoforge.lowering.schedule import Schedule
from evoforge.paths import data_dir

__all__ = ["Kernel", "print_kernel"]

_MOST_THREADS = 1 << 12  # a kernel may be called with more than it was planned for


@dataclass
class Kernel:
    """What nests add to while they are printed. `own`: parameter → what it is called in the nest that is printed."""

    domain: Domain
    plan: Plan
    schedule: Schedule
    names: Names
    matrix_parts: int = 0
    parameters: dict[str, Parameter] = field(default_factory=dict)
    requires: list[str] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    pieces: list[dict[str, str]] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    pointers: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)

    def parameter(self, name: str, choices: tuple[int, ...], default: int) -> str:
        """Declares a parameter that no other one is tied to by requirements; what it is called."""
        self.tied([Parameter(name, default, choices)])
        return self.own[name]

    def tied(self, wanted: Sequence[Parameter], requires: Sequence[str] = ()) -> None:
        """Declares parameters and what is required of them.

        A second nest narrows the choices to the common ones; where there are none, or none that meet all
        requirements, it has parameters of its own.
        """
        for number in count(1):
            self.own |= {one.name: one.name if number == 1 else f"{one.name}_{number}" for one in wanted}
            found = {self.own[one.name]: self._common(self.own[one.name], one) for one in wanted}
            texts = list(dict.fromkeys([*self.requires, *map(self.named, requires)]))
            parameters = self.parameters | {name: one for name, one in found.items() if one is not None}
            if None not in found.values() and _tied(parameters, texts, found.keys()).nearest() is not None:
                self.parameters, self.requires = parameters, texts
                return

    def _common(self, name: str, wanted: Parameter) -> Parameter | None:
        known = self.parameters.get(name)
        if known is None:
            return replace(wanted, name=name)
        common = tuple(c for c in known.choices if c in wanted.choices)
        default = known.default if known.default in common else common[0] if common else 0
        return Parameter(name, default, common) if common else None

    def named(self, text: str) -> str:
        """A text with parameters by the names that they have in this nest."""
        other = {name: own for name, own in self.own.items() if own != name}
        return re.sub(rf"\b({'|'.join(other)})\b", lambda found: other[found[0]], text) if other else text

    def flag(self, name: str, condition: str) -> str:
        """A boolean constant of the kernel."""
        condition = self.named(condition)
        if condition not in self.flags:
            count = sum(known.rstrip("0123456789") == name for known in self.flags.values())
            self.flags[condition] = name if not count else f"{name}{count + 1}"
        return self.flags[condition]

    def piece(self, name: str, ctype: str, count: str, what: str) -> str:
        """A part of the workspace."""
        self.pieces.append({"name": name, "type": ctype, "count": self.named(count), "what": what})
        return name


def print_kernel(
    forms: Sequence[tuple[Domain, Plan]],
    schedule: Schedule,
    title: str,
    notes: list[str],
    lanes: int,
    matrix_parts: int = 0,
) -> tuple[str, Kernel]:
    """The source of one schedule, and what was declared in its first form.

    Where there are several `forms`, one per workload, the source holds all, and a build for one workload what that
    one runs; other sizes run the first. `lanes` is the number of floats in a vector of the target, which bounds
    parameters; the source itself adapts to the instruction set. `matrix_parts`: see `ScheduleSpace`.

    Raises:
        UnsupportedError: no size tells the forms apart.
    """
    conditions = _told_apart([domain for domain, _ in forms])
    kernels: list[Kernel] = []
    for domain, plan in forms:
        kernel = Kernel(domain, plan, schedule, Names(domain), matrix_parts)
        if kernels:
            kernel.parameters, kernel.requires = kernels[-1].parameters, kernels[-1].requires
        _print_form(kernel, lanes)
        kernels.append(kernel)
    _settle(kernels[-1])
    for kernel in kernels:
        kernel.parameters, kernel.requires = kernels[-1].parameters, kernels[-1].requires
        _widen(kernel, lanes)
    source = _template().render(
        title=title,
        notes=notes,
        parameters=kernels[0].parameters.values(),
        requires=kernels[0].requires,
        forms=[
            {"condition": condition, "pieces": kernel.pieces, "lines": [*_declarations(kernel), "", *kernel.body]}
            for condition, kernel in zip(conditions, kernels, strict=True)
        ],
    )
    return source + "\n", kernels[0]


def _told_apart(domains: Sequence[Domain]) -> list[str]:
    """For each domain, in C++, what holds of the tensors in its workload alone.

    Sizes and strides are literals in a build, so that forms of others vanish from it. Where types differ they are
    looked at too: what is traced is a smaller workload, which may have another one's sizes.
    """
    own = [{name: t for name, t in domain.tensors.items() if t.kind != "tmp"} for domain in domains]
    for name in sorted(set().union(*own)):
        ranks = [f"{len(tensors[name].shape)} dimensions" if name in tensors else "none" for tensors in own]
        if len(set(ranks)) > 1:
            raise UnsupportedError(
                f"expected {name} in all workloads with as many dimensions, got {', '.join(ranks)}; make them separate "
                "tasks"
            )
    found: list[list[str]] = [[] for _ in domains]
    for facts in (_sizes, _strides, _dtypes):
        for name in own[0]:
            if len(set(map(tuple, found))) < len(domains) or facts is _dtypes:
                for known, more in zip(found, _unlike([facts(tensors[name]) for tensors in own]), strict=True):
                    known += more
    if len(set(map(tuple, found))) < len(domains):
        raise UnsupportedError(
            "expected workloads whose tensors differ in sizes, strides or types, got some that a kernel cannot tell "
            "apart; make them separate tasks"
        )
    return [" && ".join(known) for known in found]


def _unlike(facts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Those of each that do not hold of all."""
    common = set(facts[0]).intersection(*facts[1:])
    return [[fact for fact in own if fact not in common] for own in facts]


def _sizes(tensor: Tensor) -> list[str]:
    return [f"EVO_SIZE({tensor.name}, {dim}) == {size}" for dim, size in enumerate(tensor.shape)]


def _strides(tensor: Tensor) -> list[str]:
    return [f"EVO_STRIDE({tensor.name}, {dim}) == {step}" for dim, step in enumerate(tensor.stride)]


def _dtypes(tensor: Tensor) -> list[str]:
    number = tensor.name.removeprefix(tensor.kind)
    return [f"call->{tensor.kind}[{number}].dtype == EVO_{tensor.dtype.upper()}"]


def _print_form(kernel: Kernel, lanes: int) -> None:
    domain, plan, schedule = kernel.domain, kernel.plan, kernel.schedule
    _pointers(kernel)
    done = 0
    while done < len(plan.nests):
        if done:
            kernel.body.append("")
        chain = plan.nests[done].chain
        members = [nest for nest in plan.nests[done:] if nest.chain is chain] if chain else [plan.nests[done]]
        printers = [
            NestPrinter(kernel, interleaved(domain, nest) if schedule.vector else nest, lanes) for nest in members
        ]
        start = len(kernel.body)
        print_chain(printers) if chain else printers[0].run()
        made = kernel.body[start:]
        alone = members[0].rows or len(plan.nests) == 1
        if not alone and any(_STATEMENT.match(line) for line in made):  # in a block: another nest may name things alike
            kernel.body[start:] = ["    {", *(f"    {line}" if line else line for line in made), "    }"]
        done += len(members)


_STATEMENT = re.compile(r" {4}\S.*;(?:  //.*)?$")  # outside of every loop


def _settle(kernel: Kernel) -> None:
    """Moves defaults as little as possible, until they meet the kernel's own requirements."""
    values = _tied(kernel.parameters, kernel.requires, {name for text in kernel.requires for name in text.split()})
    for name, value in (values.nearest() or {}).items():
        kernel.parameters[name] = replace(kernel.parameters[name], default=value)


def _widen(kernel: Kernel, lanes: int) -> None:
    """Counts of pieces are computed in more than `int` where some step on the way may not fit that."""
    sizes = [(shape.factors[0], shape.values) for shape in kernel.domain.shapes.values()]
    scope = Scope({}, {name: max(one.choices) for name, one in kernel.parameters.items()}, lanes)
    for piece in kernel.pieces:
        for workload in range(kernel.domain.workloads):
            count = piece["count"].replace("call->threads", str(_MOST_THREADS))
            for text, values in sizes:
                count = count.replace(text, str(values[workload]))
            tree = parsed(count) or ast.Constant(0)
            steps = (ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.BinOp))
            piece["count"] = wide(piece["count"], max((scope.number(step) or 0 for step in steps), default=0))


def _tied(parameters: Mapping[str, Parameter], requires: Sequence[str], names: Set[str]) -> ParameterSpace:
    """`names` and the parameters that requirements tie to them."""
    words = [(text, parameters.keys() & text.split()) for text in requires]
    found, before = parameters.keys() & names, set[str]()
    while found != before:
        before = found
        found = found.union(*(own for _, own in words if own & found))
    return ParameterSpace(
        tuple(one for name, one in parameters.items() if name in found),
        tuple(text for text, own in words if own & found),
    )


def _pointers(kernel: Kernel) -> None:
    domain, names = kernel.domain, kernel.names
    private = {tensor for nest in kernel.plan.nests if nest.chain for tensor in nest.chain.private}
    for name, tensor in domain.tensors.items():
        producer = domain.producer(name)
        if tensor.kind == "tmp" and producer is not None:
            word = names.of(producer)
            if sum(out is not None for out in producer.outputs) > 1:
                word = names.fresh(f"{producer.name}_{producer.outputs.index(name)}")
            kernel.pointers[name] = names.fresh(f"{word}_{'block' if name in private else 'all'}")
        else:
            kernel.pointers[name] = name
    for tensor_name in (name for name in kernel.plan.memory if name not in private):
        tensor = domain.tensors[tensor_name]
        producer = domain.producer(tensor_name)
        assert producer is not None
        ctype = CTYPES[computed(tensor.dtype)]
        count = " * ".join(domain.shapes[a].factors[0] for a in producer.axes) or "1"
        kernel.piece(kernel.pointers[tensor_name], ctype, count, f"{producer.origin or producer.name}, whole")


def _declarations(kernel: Kernel) -> list[str]:
    domain, words = kernel.domain, set(re.findall(r"\w+", "\n".join(kernel.body)))
    lines = ["evo::flushed tiny(call->threads);"] if kernel.schedule.flushed else []
    sizes = kernel.names.definitions()
    if sizes:
        lines.append(f"const int64_t {', '.join(sizes)};")
    for condition, name in kernel.flags.items():
        lines.append(f"const bool {name} = {condition};")
    for kind, macro in (("in", "EVO_IN"), ("cst", "EVO_CST"), ("out", "EVO_OUT")):
        found = sorted((t for t in domain.tensors.values() if t.kind == kind), key=lambda t: int(t.name[len(kind) :]))
        for tensor in found:
            if tensor.name in words:
                const = "" if kind == "out" else "const "
                ctype = CTYPES[tensor.dtype]
                lines.append(f"{const}{ctype}* {tensor.name} = {macro}({ctype}, {tensor.name[len(kind) :]});")
    if kernel.pieces:
        lines.append("evo::arena space{(char*)call->ws};")
    taken = "{type}* {name} = space.take<{type}>({count});  // {what}"
    lines += [taken.format(**piece) for piece in kernel.pieces]
    return [f"    {line}" for line in lines]


@lru_cache
def _template() -> Any:
    import jinja2

    folder = data_dir("templates") / "cpp"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined, keep_trailing_newline=False
    )
    return environment.get_template("kernel.cpp.j2")
