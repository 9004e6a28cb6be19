"""PyTorch module → the program that torch.export makes of it, taken apart into operators that have handlers.

What cannot be lowered is refused here, by name and with the line that asks for it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import logging
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from evoforge.errors import EvoforgeError, TaskError, UnsupportedError
from evoforge.lowering.operators import HANDLERS
from evoforge.lowering.unchecked import unchecked

__all__ = ["exported", "recorded_line"]

_MOST_COMPARED = 1 << 26  # elements of all steps of a model that is run to be compared


def exported(model: Any, inputs: tuple[Any, ...]) -> Any:
    """The exported program (`torch.export.ExportedProgram`); the model stays as it was.

    Raises:
        UnsupportedError: operators or effects that the representation does not hold.
        TaskError: control flow or shapes that depend on the values of tensors.
    """
    import torch

    with torch.no_grad(), _quiet(), _restored(model):
        program = _program(model, inputs)
    _refuse_effects(program)
    _refuse_unknown(program.graph.nodes)
    with torch.no_grad(), _quiet(), _restored(model):
        _refuse_another(program, model, inputs)
    return program


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch's export warns, logs and prints about itself; the standard streams stay the caller's."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _program(model: Any, inputs: tuple[Any, ...]) -> Any:
    """The exported program, decomposed except for what has a handler.

    A buffer that forward assigns anew (``self.h0 = self.h0.to(x.device)``) is a change of state to torch; the same
    tensor as a plain attribute is a constant.
    """
    import torch

    def once() -> Any:
        with unchecked():
            program = torch.export.export(model, inputs)
        _refuse_complex(program.graph.nodes)
        if not _unknown(program.graph.nodes):  # nothing to take apart, nor changed in place: no handler does that
            return program
        try:
            return _decomposed(program.run_decompositions(_table()))
        except Exception:  # boundary: as below
            _refuse_gradients(program)
            raise

    plain = [module for module in model.modules() if module._non_persistent_buffers_set]
    try:
        if not plain:
            return once()
        with contextlib.suppress(Exception), _restored(model):
            program = once()
            if not _effects(program):
                return program
        with _as_attributes(plain):
            return once()
    except Exception as error:  # boundary: torch.export raises whatever the model and torch raise
        raise _explained(error) from error


@contextlib.contextmanager
def _restored(model: Any) -> Iterator[None]:
    """Buffers are afterwards what they were, whatever forward assigned; TorchScript's modules keep their own."""
    before = [(module, dict(module._buffers)) for module in model.modules() if isinstance(module._buffers, dict)]
    try:
        yield
    finally:
        for module, buffers in before:
            for name in buffers.keys() - module._buffers.keys():
                vars(module).pop(name, None)
            module._buffers.clear()
            module._buffers.update(buffers)


@contextlib.contextmanager
def _as_attributes(modules: Sequence[Any]) -> Iterator[None]:
    """Buffers outside of the state dict are plain attributes for a while."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(_restored(module))
            for name in module._non_persistent_buffers_set & module._buffers.keys():
                vars(module)[name] = module._buffers.pop(name)
        yield


@functools.cache
def _table() -> Any:
    """torch's decompositions of everything that has no handler."""
    import torch

    table = torch.export.default_decompositions()
    for target in [target for target in table if str(target) in HANDLERS]:
        table.pop(target)
    return table


def _decomposed(program: Any) -> Any:
    """Also takes apart what torch counts as basic but has a decomposition for (upsampling, …)."""
    from torch._decomp import decomposition_table

    whole = program
    for _ in range(3):
        unknown = {node.target for node in program.graph.nodes if str(node.target) not in HANDLERS}
        more = {target: decomposition_table[target] for target in unknown if target in decomposition_table}
        if not more:
            break
        program = program.run_decompositions(more)
    # if that ends in torch's primitives, the operator is better refused under its own name
    return whole if any(name.startswith("prims.") for name, _ in _unknown(program.graph.nodes)) else program


def _explained(error: Exception) -> EvoforgeError:
    text = str(error).strip()
    place = _user_line(error.__traceback__)
    if isinstance(error, EvoforgeError):
        said, _, advice = text.rpartition("; ")
        return error if place in text else type(error)(f"{said}{place}; {advice}")
    kind = type(error).__name__
    signs = (
        "data-dependent", "DataDependent", "dynamic control flow", "Dynamic control flow", "unbacked",
        "ints,but got FakeTensor",  # a size that a tensor holds: packed sequences
    )  # fmt: skip
    if any(sign in text or sign in kind for sign in signs):
        return _depends_on_values(place)
    first = text.splitlines()[0] if text else kind
    return UnsupportedError(
        f"expected a model that torch.export can read, but it ends{place or ' in an operator'} ({kind}: {first}); "
        f"{_INSTEAD}"
    )


def _user_line(traceback: TracebackType | None) -> str:
    """`` at file:line: code`` of the innermost frame outside torch and the standard library."""
    place = ""
    while traceback is not None:
        if _is_users(name := traceback.tb_frame.f_code.co_filename):
            place = _place(name, traceback.tb_lineno)
        traceback = traceback.tb_next
    return place


def _is_users(name: str) -> bool:
    """Whether a file is none of torch, the standard library or this package."""
    roots = [sysconfig.get_path("stdlib"), str(Path(__file__).parents[1])]
    torch = sys.modules.get("torch")
    roots += [str(Path(str(torch.__file__)).parent)] if torch else []
    return not name.startswith(("<", *roots))


def _place(name: str, line: int) -> str:
    code = linecache.getline(name, line).strip()[:100]
    return f" at {Path(name).name}:{line}" + (f": `{code}`" if code else "")


def _depends_on_values(place: str) -> TaskError:
    return TaskError(
        f"expected static control flow and shapes, but the model, or torch within an operator, decides by the values "
        f"of a tensor{place}; rewrite that part with torch.where or a mask"
    )


def _effects(program: Any) -> list[Any]:
    """What the program returns beside its results."""
    return [spec for spec in program.graph_signature.output_specs if spec.kind.name != "USER_OUTPUT"]


def _refuse_effects(program: Any) -> None:
    for spec in _effects(program):
        if spec.kind.name == "TOKEN":
            _refuse_unknown(program.graph.nodes)  # by name and line
            raise UnsupportedError(
                "expected operators without effects, got one that checks values as it runs (as torch.linalg's do); "
                "a kernel of your own can still be judged"
            )
        what = str(spec.target or spec.arg)
        kind = spec.kind.name.lower().replace("_", " ")
        made = [node for node in program.graph.nodes if node.name == getattr(spec.arg, "name", None)]
        place = "".join(map(recorded_line, made))
        raise UnsupportedError(
            f"expected a forward without side effects, got {kind} of {what}{place}; "
            "return a new tensor instead of changing one in place"
        )


def _unknown(nodes: Any) -> list[tuple[str, Any]]:
    """(operator, node) of every node without a handler; the branches of one that has some go with it."""
    found = []
    for node in nodes:
        if node.op == "call_function" and "getitem" not in str(node.target) and str(node.target) not in HANDLERS:
            found.append((str(node.target), node))
        elif node.op in ("call_module", "call_method") or (node.op == "get_attr" and not _is_branch(node)):
            found.append((f"{node.op} {node.target}", node))
    return found


def _is_branch(node: Any) -> bool:
    import torch

    return isinstance(getattr(node.graph.owning_module, node.target, None), torch.nn.Module)


_INSTEAD = "leave that part out of the task, or start from a kernel of your own with --from"
_VALUE_DEPENDENT = ("_local_scalar_dense", "item.", "nonzero", "masked_select", "unique", "sym_size", "bincount")


def _refuse_unknown(nodes: Any) -> None:
    unknown = _unknown(nodes)
    for name, node in unknown:
        if any(part in name for part in _VALUE_DEPENDENT):
            raise _depends_on_values(recorded_line(node))
    if unknown:
        places = {name: recorded_line(node) for name, node in reversed(unknown)}
        named = ", ".join(f"{name}{place}" for name, place in sorted(places.items()))
        raise UnsupportedError(f"expected operators that the lowering covers, got {named}; {_INSTEAD}")


def _refuse_complex(nodes: Any) -> None:
    """Under the name of what makes them: taken apart, complex numbers fail in many ways."""
    for node in nodes:
        made = node.meta.get("val")
        if node.op == "call_function" and getattr(made, "is_complex", bool)():
            raise UnsupportedError(
                f"expected real tensors, got complex ones from {node.target}{recorded_line(node)}; write them out as "
                "pairs of real ones"
            )


def _refuse_gradients(program: Any) -> None:
    nodes = [node for module in program.graph_module.modules() for node in module.graph.nodes]
    for node in nodes:
        if getattr(node.target, "__name__", "") == "_unwrap_for_grad":
            raise UnsupportedError(
                f"expected values, got gradients of torch.func{recorded_line(node)}, which torch.export cannot read; "
                "write the derivative out"
            )


def _refuse_another(program: Any, model: Any, inputs: tuple[Any, ...]) -> None:
    """torch takes a few operators apart into something else than they compute; every kernel would be wrong.

    Large models are taken at its word: to run them step by step costs memory.
    """
    import torch
    from torch.utils import _pytree as pytree

    values = [node.meta.get("val") for node in program.graph.nodes]
    if sum(one.numel() for one in values if isinstance(one, torch.Tensor)) > _MOST_COMPARED:
        return
    try:
        expected, again, found = (pytree.tree_leaves(run(*inputs)) for run in (model, model, program.module()))
    except Exception:  # boundary: what cannot be run twice is judged as it is
        return
    output = next(node for node in program.graph.nodes if node.op == "output")
    for at, (one, twice, other) in enumerate(zip(expected, again, found, strict=True)):
        if not isinstance(one, torch.Tensor) or not one.is_floating_point() or not one.numel():
            continue
        one, twice, other = one.double(), twice.double(), other.double()
        room = {"rtol": 0.05, "atol": float(0.05 * one.abs().nan_to_num(0, 0, 0).max()), "equal_nan": True}
        if not torch.allclose(twice, one, **room):
            raise UnsupportedError(
                "expected the same outputs for the same inputs, got others the second time for output "
                f"{at}{_random(model, inputs)}; take random operators out of forward()"
            )
        if not torch.allclose(other, one, **room):
            raise UnsupportedError(
                "expected torch to take the model apart into what it computes, got something else for output "
                f"{at}{recorded_line(output.args[0][at])}; write out the operator whose decomposition is wrong"
            )


def _random(model: Any, inputs: tuple[Any, ...]) -> str:
    """`` because of OPERATOR at file:line: code``: the first that draws numbers."""
    import torch
    from torch.overrides import TorchFunctionMode, resolve_name

    found: list[str] = []

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = torch.get_rng_state()
            result = function(*args, **(kwargs or {}))
            if not found and not torch.equal(before, torch.get_rng_state()):
                frame = sys._getframe()
                while frame.f_back and not _is_users(frame.f_code.co_filename):
                    frame = frame.f_back
                place = _place(frame.f_code.co_filename, frame.f_lineno)
                found.append(f" because of {resolve_name(function) or function}{place}")
            return result

    with Watch():
        model(*inputs)
    return "".join(found)


def recorded_line(node: Any) -> str:
    """`` at file:line: code`` where the export says that a node comes from."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    written = [(name, int(line)) for name, line in lines if not name.startswith("<")]
    own = [(name, line) for name, line in written if _is_users(name)] or written
    return _place(*own[-1]) if own else ""
