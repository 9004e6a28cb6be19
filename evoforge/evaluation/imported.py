"""``pkg.mod:Class --input x=f32[8,1024]`` as the text of a task module, found without importing it."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from evoforge.errors import TaskError, UsageError
from evoforge.evaluation.dtypes import DTYPE_NAMES, short_dtype

__all__ = ["Imported", "file_digest", "imported_files", "imported_text", "read_imported"]

_INPUT = re.compile(
    r"^(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>[A-Za-z]\w*(?:\.\w+)?)\[(?P<dims>[\d,\s]*)\](?:<(?P<below>\d{1,18}))?$"
)


@dataclass(frozen=True)
class Imported:
    """`source` is a module of the KernelBench format; `imported_source` the text it imports from."""

    name: str
    source: str
    imported_source: str


@dataclass(frozen=True)
class _Input:
    name: str | None
    dtype: str
    shape: tuple[int, ...]
    below: int = 2

    @property
    def expression(self) -> str:
        """Floating values are standard normal; integers and bools are 0 or 1, which index anything, or as was asked."""
        if self.dtype in ("float32", "float64", "float16", "bfloat16"):
            return f"torch.randn({self.shape!r}).to(torch.{self.dtype})"
        return f"torch.randint(0, {self.below}, {self.shape!r}).to(torch.{self.dtype})"


def read_imported(spec: str, inputs: Sequence[str]) -> Imported:
    """The task module for ``pkg.mod:Class``, looked up from the working directory and ``sys.path``.

    Args:
        inputs: one ``[NAME=]DTYPE[SIZES]`` per argument of forward, by name or by position; behind it ``<N`` says that
            integers are drawn below N.

    Raises:
        TaskError: no such module or class, or arguments of forward without an input.
        UsageError: an input that cannot be read.
    """
    module, _, attribute = spec.partition(":")
    path = _find(module, spec)
    text = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise TaskError(f"{path}:{error.lineno or 1}: expected Python, got a syntax error ({error.msg})") from None
    wanted = [_parse_input(item) for item in inputs]
    if not wanted:
        raise UsageError(f"expected at least one --input with {spec}, like --input x=f32[8,1024]; got none")
    ordered = _order(wanted, _parameters(tree, attribute, path, spec), spec)
    values = "".join(f"        {item.expression},\n" for item in ordered)
    source = (
        f'"""{spec} as a task."""\n\nimport torch\n\nfrom {module} import {attribute} as Model\n\n\n'
        f"def get_inputs():\n    return [\n{values}    ]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return Imported(attribute, source, text)


def imported_text(spec: str, root: str | None) -> str | None:
    """What ``pkg.mod:Class`` is imported from now, looked up from the folder `root`; None: nothing is found there."""
    try:
        return _find(spec.partition(":")[0], spec, root).read_text(encoding="utf-8")
    except (TaskError, OSError, UnicodeDecodeError):
        return None


def imported_files(model: object, inputs: object) -> dict[str, str]:
    """Path → `file_digest` of every module of this process that is neither installed nor a part of Python.

    Run beside the reference: what a task file imports decides what is computed as much as its own text.
    """
    library, ours = sysconfig.get_path("stdlib"), str(Path(__file__).resolve().parents[1])
    found: dict[str, str] = {}
    for module in list(sys.modules.values()):
        path = Path(str(getattr(module, "__file__", None) or ""))
        # The task file's own text has no spec: it is not imported.
        if getattr(module, "__spec__", None) is None or path.suffix != ".py":
            continue
        installed = {"site-packages", "dist-packages"} & {*path.parts} or str(path).startswith(
            (f"{library}/", f"{ours}/")
        )
        digest = None if installed else file_digest(path)
        if digest is not None:
            found[str(path.absolute())] = digest
    return found


def file_digest(path: str | Path) -> str | None:
    """sha256 of a file; None where it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def _find(module: str, spec: str, root: str | None = None) -> Path:
    places: list[str] | None = [root or str(Path.cwd()), *sys.path]
    found: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        # The parents are located, not imported: importing would run the user's code in this process.
        found = PathFinder.find_spec(name, places)
        if found is None:
            raise TaskError(
                f"expected a module {module} on the import path for {spec}, found no {name}; cd to its root"
            )
        places = list(found.submodule_search_locations or [])
    if found is None or not found.origin or not found.origin.endswith(".py"):
        raise TaskError(f"expected {module} to be a Python source file for {spec}, got {found and found.origin}")
    return Path(found.origin)


def _parse_input(text: str) -> _Input:
    match = _INPUT.match(text.strip())
    short = short_dtype(match["dtype"]) if match else None
    if match is None or short is None:
        raise UsageError(
            f"expected an input like x=f32[8,1024] with a dtype of {', '.join(DTYPE_NAMES.values())}, got {text!r}"
        )
    long = next(name for name, known in DTYPE_NAMES.items() if known == short)
    dims = [part.strip() for part in match["dims"].split(",")]
    if dims != [""] and "" in dims:
        raise UsageError(f"expected sizes between commas like [8,1024], got {text!r}")
    most = {"int8": 128, "uint8": 256, "int16": 1 << 15, "int32": 1 << 31, "int64": 10**18}.get(long, 0)
    below = int(match["below"] or 2)
    if match["below"] and not 0 < below <= most:
        raise UsageError(
            f"expected a bound for integers of the dtype behind the sizes, as in i64[8]<1000, got {text!r}"
        )
    return _Input(match["name"], long, () if dims == [""] else tuple(int(part) for part in dims), below)


def _parameters(tree: ast.Module, attribute: str, path: Path, spec: str) -> tuple[list[str], int] | None:
    """(forward's parameters, how many must be given); None where reading cannot tell."""
    names: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names.update({alias.asname or alias.name: node for alias in node.names})
        elif isinstance(node, ast.Assign):
            names.update({leaf.id: node for target in node.targets for leaf in ast.walk(target)
                          if isinstance(leaf, ast.Name)})  # fmt: skip
    node_ = names.get(attribute)
    if node_ is None:
        known = ", ".join(name for name, node in names.items() if isinstance(node, ast.ClassDef | ast.FunctionDef))
        raise TaskError(
            f"{path}:1: expected a top-level class or function {attribute} for {spec}, found {known or 'none'}; "
            "name the module that defines it"
        )
    if isinstance(node_, ast.FunctionDef):
        return None if node_.args.vararg else _signature(node_, 0)
    if isinstance(node_, ast.ClassDef):
        methods = {node.name: node for node in node_.body if isinstance(node, ast.FunctionDef)}
        if "__init__" in methods and _signature(methods["__init__"], 1)[1]:
            needed = ", ".join(_signature(methods["__init__"], 1)[0])
            raise TaskError(
                f"{path}:{methods['__init__'].lineno}: expected {attribute}() to need no arguments, got ({needed}); "
                "write a task file whose get_init_inputs() returns them"
            )
        if "forward" in methods and not methods["forward"].args.vararg:
            return _signature(methods["forward"], 1)
    return None


def _signature(function: ast.FunctionDef, skip: int) -> tuple[list[str], int]:
    names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]][skip:]
    return names, max(0, len(names) - len(function.args.defaults))


def _order(wanted: list[_Input], known: tuple[list[str], int] | None, spec: str) -> list[_Input]:
    if known is None:
        return wanted
    names, required = known
    slots: dict[str, _Input] = {}
    for position, item in enumerate(wanted):
        name = item.name or (names[position] if position < len(names) else "")
        if name not in names or name in slots:
            raise UsageError(
                f"expected one --input for each of {', '.join(names)} with {spec}, got {item.name or 'more'!r}"
            )
        slots[name] = item
    given = [name for name in names if name in slots]
    # Arguments are passed by position, so a gap cannot be left to its default.
    missing = [name for name in names[: max(required, names.index(given[-1]) + 1)] if name not in slots]
    if missing:
        raise TaskError(
            f"expected an --input for {', '.join(missing)} of {spec} too, like --input {missing[0]}=f32[8,1024]"
        )
    return [slots[name] for name in given]
