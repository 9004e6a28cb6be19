"""PyTorch module → `Graph`, by torch.export. Runs in the process that holds the module.

Parameters and buffers are cst0…, forward's tensor arguments in0…, results out0…, as in the C ABI.
Sixteen-bit floats are read as f32, computed in f32 between operators, and rounded once, at the
outputs. What is not covered is refused by operator name before anything is spent.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import logging
import math
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from evoforge.errors import EvoforgeError, TaskError, UnsupportedError
from evoforge.lowering.index import add, scale
from evoforge.lowering.ir import Const, Expr, Graph, Position, Tensor, to_json
from evoforge.lowering.operators import HANDLERS, Builder, Value
from evoforge.lowering.operators.builder import op, short_dtype, where, working
from evoforge.lowering.simplify import tidy
from evoforge.lowering.stages import row_major

__all__ = ["capture", "capture_graph"]

_MOST_COMPARED = 1 << 26  # elements of all steps of a model that is run to be compared
_MOST_BAKED = 64  # elements of a constant tensor that are written into the source


def capture(model: Any, inputs: Sequence[Any]) -> Any:
    """The JSON of `capture_graph`: what the reference process sends back."""
    return to_json(capture_graph(model, inputs))


def capture_graph(model: Any, inputs: Sequence[Any]) -> Graph:
    """What `model(*inputs)` computes in eval mode, as loop nests.

    Raises:
        UnsupportedError: operators, dtypes or effects that the representation does not hold.
        TaskError: control flow or shapes that depend on the values of tensors.
    """
    import torch

    with torch.no_grad(), _quiet(), _restored(model):
        program = _exported(model, tuple(inputs))
    _refuse_effects(program)
    _refuse_unknown(program.graph.nodes)
    with torch.no_grad(), _quiet(), _restored(model):
        _refuse_another(program, model, tuple(inputs))
    builder = Builder()
    try:
        known = _arguments(builder, program, model, inputs)
        results = _walk(builder, program.graph.nodes, known)
        _store(builder, results)
        return tidy(builder.graph())
    except RecursionError:
        raise UnsupportedError("expected expressions that nest less deeply; is one computed in a long loop?") from None


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


def _exported(model: Any, inputs: tuple[Any, ...]) -> Any:
    """The exported program, decomposed except for what has a handler.

    A buffer that forward assigns anew (``self.h0 = self.h0.to(x.device)``) is a change of state to torch; the same
    tensor as a plain attribute is a constant.
    """
    import torch

    def once() -> Any:
        with _without_checks():
            program = torch.export.export(model, inputs)
        return _decomposed(program.run_decompositions(_table()))

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
    except EvoforgeError:
        raise
    except Exception as error:  # boundary: torch.export raises whatever the model and torch raise
        raise _explained(error) from error


@contextlib.contextmanager
def _restored(model: Any) -> Iterator[None]:
    """Buffers are afterwards what they were, whatever forward assigned."""
    before = [(module, dict(module._buffers)) for module in model.modules()]
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


@contextlib.contextmanager
def _without_checks() -> Iterator[None]:
    """The one function of torch that looks at values only to refuse some of them is traced without that."""
    import torch

    functional: Any = torch.nn.functional
    checked = functional.gaussian_nll_loss
    functional.gaussian_nll_loss = _gaussian_nll_loss
    try:
        yield
    finally:
        functional.gaussian_nll_loss = checked


def _gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """torch's formula: half of ln max(var, eps) + (input − target)² / max(var, eps), and of ln 2π where `full`."""
    import torch

    var = torch.full_like(input, var) if isinstance(var, float) else var
    if var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return {"mean": loss.mean, "sum": loss.sum}.get(reduction, lambda: loss)()


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
    kind = type(error).__name__
    signs = ("data-dependent", "DataDependent", "dynamic control flow", "Dynamic control flow", "unbacked")
    if any(sign in text or sign in kind for sign in signs):
        return _depends_on_values(place)
    first = text.splitlines()[0] if text else kind
    return UnsupportedError(f"expected a model that torch.export can read, got {kind}: {first}{place}")


def _user_line(traceback: TracebackType | None) -> str:
    """`` at file:line: code`` of the innermost frame outside torch and the standard library."""
    roots = [sysconfig.get_path("stdlib"), str(Path(__file__).parents[1])]
    torch = sys.modules.get("torch")
    roots += [str(Path(str(torch.__file__)).parent)] if torch else []
    place = ""
    while traceback is not None:
        name, line = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        if not name.startswith("<") and not any(name.startswith(root) for root in roots):
            place = _place(name, line)
        traceback = traceback.tb_next
    return place


def _place(name: str, line: int) -> str:
    code = linecache.getline(name, line).strip()[:100]
    return f" at {Path(name).name}:{line}" + (f": `{code}`" if code else "")


def _depends_on_values(place: str) -> TaskError:
    return TaskError(
        f"expected static control flow and shapes, but the model decides by the values of a tensor{place}; "
        "rewrite that part with torch.where or a mask"
    )


def _effects(program: Any) -> list[Any]:
    """What the program returns beside its results."""
    return [spec for spec in program.graph_signature.output_specs if spec.kind.name != "USER_OUTPUT"]


def _refuse_effects(program: Any) -> None:
    for spec in _effects(program):
        if spec.kind.name == "TOKEN":
            raise UnsupportedError(
                "expected operators without effects, got one that checks values as it runs (as torch.linalg's do); "
                "a kernel of your own can still be judged"
            )
        what = str(spec.target or spec.arg)
        raise UnsupportedError(
            f"expected a forward without side effects, got {spec.kind.name.lower().replace('_', ' ')} of {what}; "
            "return a new tensor instead of changing one in place"
        )


def _unknown(nodes: Any) -> list[tuple[str, Any]]:
    """(operator, node) of every node without a handler."""
    found = []
    for node in nodes:
        if node.op == "call_function" and "getitem" not in str(node.target) and str(node.target) not in HANDLERS:
            found.append((str(node.target), node))
        elif node.op in ("call_module", "call_method", "get_attr"):
            found.append((f"{node.op} {node.target}", node))
    return found


_VALUE_DEPENDENT = ("_local_scalar_dense", "item.", "nonzero", "masked_select", "unique", "sym_size", "bincount")


def _refuse_unknown(nodes: Any) -> None:
    unknown = _unknown(nodes)
    for name, node in unknown:
        if any(part in name for part in _VALUE_DEPENDENT):
            raise _depends_on_values(_recorded_line(node))
    if unknown:
        raise UnsupportedError(
            f"expected operators that the lowering covers, got {', '.join(sorted({name for name, _ in unknown}))}; "
            "leave that part out of the task, or start from a kernel of your own with --from"
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
        expected, found = (pytree.tree_leaves(run(*inputs)) for run in (model, program.module()))
    except Exception:  # boundary: what cannot be run twice is judged as it is
        return
    for at, (one, other) in enumerate(zip(expected, found, strict=True)):
        if not isinstance(one, torch.Tensor) or not one.is_floating_point() or not one.numel():
            continue
        one, other = one.double(), other.double()
        largest = one.abs().nan_to_num(0, 0, 0).max()
        if not torch.allclose(other, one, rtol=0.05, atol=float(0.05 * largest), equal_nan=True):
            names = sorted({str(node.target) for node in program.graph.nodes if node.op == "call_function"})
            raise UnsupportedError(
                f"expected torch to take the model apart into what it computes, got another output {at}; one of its "
                f"decompositions is wrong for these inputs (left are {', '.join(names)[:200]}); write that operator out"
            )


def _recorded_line(node: Any) -> str:
    """Where the export says that a node comes from."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return _place(lines[-1][0], int(lines[-1][1])) if lines else ""


# arguments


def _arguments(builder: Builder, program: Any, model: Any, inputs: Sequence[Any]) -> dict[Any, Any]:
    """Declares in0…, cst0… and gives every placeholder node its value."""
    import torch
    from torch.utils import _pytree as pytree

    given = [leaf for leaf in pytree.tree_leaves(tuple(inputs)) if isinstance(leaf, torch.Tensor)]
    constants = [*dict(model.named_parameters()).values(), *dict(model.named_buffers()).values()]
    by_name = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    position = {id(tensor): at for at, tensor in enumerate(constants)}
    for prefix, kind, tensors in (("in", "in", given), ("cst", "cst", constants)):
        for at, tensor in enumerate(tensors):
            shape, stride = tuple(tensor.shape), tuple(tensor.stride())
            builder.tensors[f"{prefix}{at}"] = Tensor(
                f"{prefix}{at}", shape, stride, short_dtype(tensor.dtype), "in" if kind == "in" else "cst"
            )
    known: dict[Any, Any] = {}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    taken = 0
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        if spec.kind.name in ("PARAMETER", "BUFFER"):
            known[node] = builder.value(f"cst{position[id(by_name[spec.target])]}")
        elif spec.kind.name == "CONSTANT_TENSOR":
            tensor = program.constants[spec.target]
            same = [f"cst{at}" for at, one in enumerate(constants) if _same_memory(one, tensor)]
            known[node] = builder.value(same[0]) if same else _baked(builder, node.name, spec.target, tensor)
        elif type(spec.arg).__name__ == "TensorArgument":
            known[node] = builder.value(f"in{taken}")
            taken += 1
        else:
            known[node] = getattr(spec.arg, "value", None)
    return known


def _same_memory(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or one.stride() != other.stride():
        return False
    return bool(one.numel()) and one.data_ptr() == other.data_ptr()


def _baked(builder: Builder, name: str, target: str, tensor: Any) -> Value:
    """A tensor made inside forward, or held as a plain attribute: its numbers go into the source."""
    dtype = working(short_dtype(tensor.dtype))
    numbers = tensor.detach().flatten().tolist()
    shape = tuple(tensor.shape)
    if len(numbers) <= 1:
        return builder.constant(numbers[0] if numbers else 0, dtype, shape)
    if len(numbers) > _MOST_BAKED:
        raise UnsupportedError(
            f"expected constant tensors of at most {_MOST_BAKED} elements outside parameters and buffers, "
            f"got {target} of shape {shape}; register it with self.register_buffer"
        )
    builder.node_name, builder.origin = name, "constant"
    steps = row_major(shape)

    def body(index: Any, extents: dict[str, int]) -> Expr:
        flat = Position(add(*(scale(one, step) for one, step in zip(index, steps, strict=True))), "i64")
        made: Expr = Const(numbers[-1], dtype)
        for at in range(len(numbers) - 2, -1, -1):
            here = op("eq", flat, Const(at, "i64"), dtype="bool")
            made = where(here, Const(numbers[at], dtype), made, dtype)
        return made

    return builder.map(shape, dtype, body)


# nodes


def _walk(builder: Builder, nodes: Any, known: dict[Any, Any]) -> list[tuple[Value, Any]]:
    """Runs the handlers in order; returns the results with what torch says about them."""
    results: list[tuple[Value, Any]] = []
    for node in nodes:
        if node.op == "output":
            leaves = [leaf for leaf in node.args[0] if hasattr(leaf, "meta")]
            results = [(known[leaf], leaf.meta["val"]) for leaf in leaves]
        if node.op != "call_function":
            continue
        if "getitem" in str(node.target):
            known[node] = known[node.args[0]][node.args[1]]
            continue
        builder.node_name, builder.origin, builder.meta = node.name, str(node.target), node.meta.get("val")
        args, kwargs = _resolved(node.args, known), _resolved(node.kwargs, known)
        known[node] = _handled(builder, args, kwargs)
    return results


def _handled(builder: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    try:
        return HANDLERS[builder.origin](builder, *args, **kwargs)
    except EvoforgeError:
        raise
    except Exception as error:  # boundary: torch calls operators in more ways than any handler knows
        raise UnsupportedError(
            f"expected arguments of {builder.origin} that the lowering covers, got {type(error).__name__}: {error}; "
            "leave that part out of the task, or start from a kernel of your own with --from"
        ) from error


def _resolved(argument: Any, known: dict[Any, Any]) -> Any:
    if isinstance(argument, list | tuple):
        return tuple(_resolved(item, known) for item in argument)
    if isinstance(argument, dict):
        return {key: _resolved(item, known) for key, item in argument.items() if key not in _IGNORED}
    return known.get(argument, argument) if hasattr(argument, "meta") else argument


_IGNORED = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking")
"""Keyword arguments that the result's meta value already tells."""


def _store(builder: Builder, results: Sequence[tuple[Value, Any]]) -> None:
    """One copy stage per output, cast to the output's own dtype; `tidy` absorbs most of them."""
    if not results:
        raise TaskError("expected a forward that returns at least one tensor, got none")
    for at, (value, meta) in enumerate(results):
        builder.output(f"out{at}", value, short_dtype(meta.dtype))
