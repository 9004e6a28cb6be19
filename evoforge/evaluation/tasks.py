"""From what the user typed to a `Task`, by reading: a task file is parsed here, never executed.

A task file is a KernelBench-format module: ``Model``, ``get_inputs()``, ``get_init_inputs()``, and
optionally ``WORKLOADS``, ``TOLERANCE`` and ``ACCEPT``. ``pkg.mod:Class`` becomes such a module by a few lines
that import the user's class. Overrides are applied to the text (`apply_overrides`), in the process
that executes it.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from evoforge.core import Task, Tolerance, Workload
from evoforge.errors import TaskError, UsageError
from evoforge.evaluation.dtypes import DTYPE_NAMES
from evoforge.evaluation.imported import read_imported

__all__ = [
    "accepted_controls", "apply_overrides", "build_task", "effective_overrides", "load_task",
    "parse_set", "tolerance_of",
]  # fmt: skip

_RESERVED = frozenset({"WORKLOADS", "TOLERANCE", "ACCEPT"})
_VALUES = "finite numbers, text, None, or lists, tuples and dicts by text of these"
_FORMAT = "a KernelBench-format task has a top-level class Model, get_inputs() and get_init_inputs()"


def load_task(spec: str, overrides: Mapping[str, Any] | None = None, inputs: Sequence[str] = ()) -> Task:
    """The task that `spec` names.

    Args:
        spec: path of a ``.py`` file, or ``pkg.mod:Class`` (a class or a function).
        overrides: module constants to replace in every workload. They win over a workload's own
            values; workloads that become equal by that are one, under the first name.
        inputs: for ``pkg.mod:Class`` only, one ``x=f32[8,1024]`` per tensor argument of forward.

    Raises:
        TaskError: the file cannot be a task; the message names file, line and what was expected.
        UsageError: an override or input that does not fit.
    """
    if not spec.endswith(".py") and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", spec):
        found = read_imported(spec, inputs)
        task = replace(
            build_task(found.source, found.name, spec, root=str(Path.cwd())),
            path=None, entry=spec, imported_source=found.imported_source,
        )  # fmt: skip
    else:
        if inputs:
            raise UsageError(
                f"expected --input only with pkg.mod:Class, got it with {spec}; edit its get_inputs() instead"
            )
        task = _load_file(Path(spec))
    return _with_overrides(task, overrides or {})


def parse_set(text: str) -> tuple[str, Any]:
    """(name, value) of ``NAME=VALUE``; the value is a Python literal or a dtype name.

    Raises:
        UsageError: neither of the two.
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name.isidentifier() or not value:
        raise UsageError(f"expected NAME=VALUE after --set, got {text!r}")
    if value.removeprefix("torch.") in DTYPE_NAMES:
        return name, value.removeprefix("torch.")
    try:
        return name, ast.literal_eval(_Folded().visit(ast.parse(value, mode="eval")))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise UsageError(
            f"expected a Python literal or a dtype name after --set {name}=, got {value!r}; "
            f"quote text twice: --set \"{name}='…'\""
        ) from None


def effective_overrides(task: Task, workload: Workload) -> dict[str, Any]:
    """What replaces the module's constants in `workload`: the task's, then the workload's own."""
    return {**task.overrides, **workload.overrides}


def apply_overrides(source: str, overrides: Mapping[str, Any]) -> str:
    """`source` with the value of every named top-level assignment replaced; line numbers stay.

    Derived constants follow, since they are computed when the module runs; those that share an assignment
    (``A = B = 4``) keep their value. Where the assignment holds anything but text, a dtype name stands for that
    torch dtype; where it holds a tuple, a list does: JSON, in which overrides are stored and sent, knows no tuples.

    Raises:
        UsageError: a name that is not assigned at top level.
    """
    if not overrides:
        return source
    found = _assignments(ast.parse(source))
    for name in overrides:
        if name not in {known for known, _, _ in found}:
            raise UsageError(f"expected the name of a top-level constant, got {name!r}")
    lines = source.encode().splitlines(keepends=True)  # where Python's own lines end: bytes know no form feed
    # From the last to the first, so that earlier positions stay right.
    for name, value, shared in sorted(found, key=lambda one: (one[1].lineno, one[1].col_offset), reverse=True):
        if name not in overrides:
            continue
        text = _literal(overrides[name], value)
        if shared is None:
            _splice(lines, value, text)
        else:
            last, end = (shared.end_lineno or shared.lineno) - 1, shared.end_col_offset
            lines[last] = lines[last][:end] + f"; {name} = {text}".encode() + lines[last][end:]
    return b"".join(lines).decode()


def _literal(value: Any, old: ast.expr) -> str:
    is_text = isinstance(old, ast.Constant) and isinstance(old.value, str)
    if isinstance(value, str) and value.removeprefix("torch.") in DTYPE_NAMES and not is_text:
        return f'__import__("torch").{value.removeprefix("torch.")}'
    return repr(_with_tuples(value, old))


def _with_tuples(value: Any, old: ast.expr) -> Any:
    """`value` with tuples where `old` has some; of rows that `old` does not reach, its last one says it."""
    if not isinstance(value, list | tuple) or not isinstance(old, ast.List | ast.Tuple):
        return value
    inner = [_with_tuples(one, old.elts[min(at, len(old.elts) - 1)]) if old.elts else one
             for at, one in enumerate(value)]  # fmt: skip
    return tuple(inner) if isinstance(old, ast.Tuple) else type(value)(inner)


def _splice(lines: list[bytes], node: ast.expr, text: str) -> None:
    """Replaces the expression; its line breaks are kept inside parentheses."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    breaks = "\n" * (last - first)
    merged = before + f"({text}{breaks})".encode() + after
    lines[first : last + 1] = merged.splitlines(keepends=True)


def _assignments(tree: ast.Module) -> list[tuple[str, ast.expr, ast.stmt | None]]:
    """(name, value, the statement if other names share the value) of what is assigned at top level.

    That is ``NAME = …``, each of ``A = B = …`` and each pair of ``A, B = …, …``.
    """
    found: list[tuple[ast.expr, ast.expr, ast.stmt | None]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found += [(target, node.value, node if len(node.targets) > 1 else None) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.append((node.target, node.value, None))
    pairs: list[tuple[ast.expr, ast.expr, ast.stmt | None]] = []
    for target, value, shared in found:
        if not isinstance(target, ast.Tuple | ast.List):
            pairs.append((target, value, shared))
        elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            starred = any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts))
            pairs += [] if starred else [(*pair, shared) for pair in zip(target.elts, value.elts, strict=True)]
    return [(target.id, value, shared) for target, value, shared in pairs if isinstance(target, ast.Name)]


def _load_file(path: Path) -> Task:
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TaskError(
            f"expected a task file or pkg.mod:Class, found no file {path}; evoforge tasks check FILE says what fits"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"expected a readable Python file, got {path}: {error}") from None
    return build_task(source, path.stem, str(path), root=str(path.resolve().parent))


def build_task(source: str, name: str, path: str, root: str) -> Task:
    """The task of a KernelBench-format text; `path` is what messages call it.

    Raises:
        TaskError: see `load_task`.
    """
    tree = _parse(source, path)
    _require_format(tree, path)
    workloads = tuple(_workloads(tree, path))
    return Task(name, source, workloads, _tolerance(tree, path), path=path, root=root)


def _parse(source: str, path: str) -> ast.Module:
    try:
        return ast.parse(source, filename=path)
    except SyntaxError as error:
        text = f": {error.text.strip()}" if error.text else ""
        raise TaskError(
            f"{path}:{error.lineno or 1}: expected Python, got a syntax error ({error.msg}){text}"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"{path}:1: expected Python source, got {error or type(error).__name__}") from None


def _names(tree: ast.Module) -> dict[str, ast.stmt]:
    """Every name bound at top level, also inside top-level if and try."""
    names: dict[str, ast.stmt] = {}
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                names[(alias.asname or alias.name).partition(".")[0]] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names.update({leaf.id: node for leaf in ast.walk(target) if isinstance(leaf, ast.Name)})
        elif isinstance(node, ast.If | ast.Try | ast.With):
            todo = [*ast.iter_child_nodes(node), *todo]  # type: ignore[list-item]
        elif isinstance(node, ast.ExceptHandler):
            todo = [*node.body, *todo]
    return names


def _require_format(tree: ast.Module, path: str) -> None:
    names = _names(tree)
    for wanted, shape in (("Model", "class Model(torch.nn.Module)"), ("get_inputs", "function get_inputs()")):
        if wanted not in names:
            near = difflib.get_close_matches(wanted, names, 1, 0.75)
            line = names[near[0]].lineno if near else max((node.lineno for node in tree.body), default=1)
            hint = f"; did you mean that by {near[0]!r}?" if near else ""
            raise TaskError(f"{path}:{line}: expected a top-level {shape}, found none{hint}; {_FORMAT}")
    inputs = names["get_inputs"]
    if isinstance(inputs, ast.FunctionDef) and _required(inputs):
        raise TaskError(f"{path}:{inputs.lineno}: expected get_inputs() to take no arguments, got {_required(inputs)}")
    model = names["Model"]
    if not isinstance(model, ast.ClassDef):
        return
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    if not model.bases and not ({"forward", "__call__"} & methods.keys()):
        raise TaskError(f"{path}:{model.lineno}: expected Model to be a torch.nn.Module with forward(), found neither")
    if "get_init_inputs" not in names and "__init__" in methods and _required(methods["__init__"])[1:]:
        needed = ", ".join(_required(methods["__init__"])[1:])
        raise TaskError(
            f"{path}:{methods['__init__'].lineno}: expected a top-level function get_init_inputs() that returns "
            f"Model's arguments ({needed}), found none; {_FORMAT}"
        )


def _required(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    positional = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]]
    return positional[: len(positional) - len(arguments.defaults)]


_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


class _Folded(ast.NodeTransformer):
    """Inside a literal, ``torch.float16`` becomes ``"float16"`` and ``2**20`` a number."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        is_torch = isinstance(node.value, ast.Name) and node.value.id == "torch"
        return ast.copy_location(ast.Constant(node.attr), node) if is_torch and node.attr in DTYPE_NAMES else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        fold = _ARITHMETIC.get(type(node.op))
        left, right = (side.value if isinstance(side, ast.Constant) else None for side in (node.left, node.right))
        if fold is None or not _is_size(left) or not _is_size(right):
            return node
        if right > (62 if isinstance(node.op, ast.Pow | ast.LShift) else 2**62):  # 9**9**9 would fill the memory
            return node
        return ast.copy_location(ast.Constant(fold(left, right)), node)


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**62


def _constant(tree: ast.Module, name: str, path: str, expected: str) -> tuple[Any, int] | None:
    for found, value, _ in _assignments(tree):
        if found == name:
            try:
                return ast.literal_eval(_Folded().visit(value)), value.lineno
            except (ValueError, TypeError, RecursionError, MemoryError) as error:
                got = ast.unparse(value)[:80] if isinstance(error, ValueError | TypeError) else "a very long expression"
                raise TaskError(
                    f"{path}:{value.lineno}: expected {name} to be {expected}, written out as a literal "
                    f"(numbers, text, lists, dicts), got {got}"
                ) from None
    return None


def _workloads(tree: ast.Module, path: str) -> Iterator[Workload]:
    expected = 'a list like [{"name": "small", "M": 256}]'
    found = _constant(tree, "WORKLOADS", path, expected)
    if found is None:
        yield Workload("default")
        return
    rows, line = found
    if not isinstance(rows, list | tuple) or not rows or not all(isinstance(row, dict) for row in rows):
        raise TaskError(f"{path}:{line}: expected WORKLOADS to be {expected}, got {rows!r:.80}")
    known = _replaceable(tree)
    seen: set[str] = set()
    for row in rows:
        name = row.get("name")
        if not isinstance(name, str) or not name or name in seen:
            raise TaskError(f"{path}:{line}: expected every workload to have a name of its own, got {row!r:.80}")
        seen.add(name)
        values = {key: value for key, value in row.items() if key != "name"}
        for key, value in values.items():
            if key not in known:
                other = _bound_otherwise(tree, key, path, f"workload {name!r}")
                raise TaskError(other or f"{path}:{line}: workload {name!r}: {_unknown(key, known)}")
            if not _is_storable(value):
                raise TaskError(f"{path}:{line}: workload {name!r}: expected {_VALUES} as {key}, got {value!r:.80}")
        yield Workload(name, values)


def tolerance_of(source: str, path: str) -> Tolerance:
    """The TOLERANCE of a task file's text; `path` is what messages call it.

    Raises:
        TaskError: it is not one.
    """
    return _tolerance(_parse(source, path), path)


def accepted_controls(source: str, path: str) -> dict[str, str]:
    """The negative controls that a task file lets pass, each with the author's reason.

    ``ACCEPT = {"zeros": "the mask hides all but a few elements"}`` is part of the task's text, so it is
    part of its identity and recorded with every campaign.

    Raises:
        TaskError: it is not a dict of texts.
    """
    found = _constant(_parse(source, path), "ACCEPT", path, 'a dict like {"zeros": "why that is harmless"}')
    if found is None:
        return {}
    values, line = found
    if not isinstance(values, dict) or not all(
        isinstance(name, str) and isinstance(reason, str) and reason.strip() for name, reason in values.items()
    ):
        raise TaskError(
            f'{path}:{line}: expected ACCEPT to be a dict like {{"zeros": "why that is harmless"}} with a '
            f"reason each, got {values!r:.80}"
        )
    return values


def _tolerance(tree: ast.Module, path: str) -> Tolerance:
    found = _constant(tree, "TOLERANCE", path, 'a dict like {"precision": "ieee"}')
    if found is None:
        return Tolerance()
    values, line = found
    known = ("precision", "nonfinite", "factor")
    if not isinstance(values, dict) or any(key not in known for key in values):
        raise TaskError(
            f"{path}:{line}: expected TOLERANCE to be a dict with keys of {', '.join(known)}, got {values!r}"
        )
    try:
        return Tolerance(**values)
    except (TaskError, TypeError) as error:
        raise TaskError(f"{path}:{line}: {error}") from None


def _unknown(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    ordered = near + sorted(known - set(near))
    return f"expected the name of a top-level constant ({', '.join(ordered) or 'this module has none'}), got {name!r}"


def _replaceable(tree: ast.Module) -> set[str]:
    """The names whose value is what is assigned to them: ``N *= 2`` would change another one as well."""
    names = _names(tree)
    found = {name for name, _, _ in _assignments(tree) if not isinstance(names[name], ast.AugAssign)}
    return found - _RESERVED


def _bound_otherwise(tree: ast.Module, name: str, path: str, who: str) -> str:
    """What to say of a name that has a value at top level which `who` cannot replace; empty where it has none."""
    bound = _names(tree).get(name)
    if not isinstance(bound, ast.Assign | ast.AugAssign | ast.AnnAssign) or name in _RESERVED:
        return ""
    return (
        f"{path}:{bound.lineno}: expected {name} to be assigned alone at top level ({name} = …) so that {who} can "
        f"replace it, got {ast.unparse(bound)[:60]!r}"
    )


def _is_storable(value: Any) -> bool:
    """Whether JSON brings it back, but for tuples; see `_with_tuples`."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list | tuple):
        return all(map(_is_storable, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_storable(one) for key, one in value.items())
    return value is None or isinstance(value, int | str)


def _with_overrides(task: Task, overrides: Mapping[str, Any]) -> Task:
    tree, path = ast.parse(task.source), str(task.path or task.entry)
    known = _replaceable(tree)
    for name, value in overrides.items():
        if name not in known:
            other = _bound_otherwise(tree, name, path, "--set")
            mend = "use --set NAME=VALUE with one of them" if known else f"write one ({name} = …) and use it"
            raise UsageError(other or f"{path}: {_unknown(name, known)}; {mend}")
        if not _is_storable(value):
            raise UsageError(f"{path}: expected {_VALUES} as {name}, got {value!r:.80}")
    if not overrides:
        return task
    workloads: list[Workload] = []
    for workload in task.workloads:
        own = {key: value for key, value in workload.overrides.items() if key not in overrides}
        if all(own != kept.overrides for kept in workloads):
            workloads.append(Workload(workload.name, own))
    return replace(task, overrides=dict(overrides), workloads=tuple(workloads))
