"""PyTorch module → `Graph`, by torch.export. Runs in the process that holds the module.

Parameters and buffers are cst0…, forward's tensor arguments in0…, results out0…, as in the C ABI.
Sixteen-bit floats are read as f32, computed in f32 between operators, and rounded once, at the
outputs; what the model rounds to a type that none of its tensors has is rounded there. What is
not covered is refused by operator name before anything is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from evoforge.errors import EvoforgeError, TaskError, UnsupportedError
from evoforge.lowering.exported import exported, recorded_line
from evoforge.lowering.index import add, scale
from evoforge.lowering.ir import Const, Expr, Graph, Position, Tensor, to_json
from evoforge.lowering.operators import HANDLERS, Builder, Value
from evoforge.lowering.operators.builder import op, short_dtype, where
from evoforge.lowering.simplify import tidy
from evoforge.lowering.stages import row_major

__all__ = ["capture", "capture_graph"]

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
    program = exported(model, tuple(inputs))
    builder = Builder()
    try:
        known = _arguments(builder, program, model, inputs)
        results = _walk(builder, program.graph.nodes, known)
        _store(builder, results)
        return tidy(builder.graph())
    except RecursionError:
        raise UnsupportedError("expected expressions that nest less deeply; is one computed in a long loop?") from None


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
    _precisions(builder, program)
    known: dict[Any, Any] = {}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    taken = 0
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        if spec.kind.name in ("PARAMETER", "BUFFER"):
            known[node] = builder.value(f"cst{position[id(by_name[spec.target])]}")
        elif spec.kind.name == "CONSTANT_TENSOR":
            tensor = program.constants[spec.target]
            same = [f"cst{at}" for at, one in enumerate(constants) if _same_memory(one, tensor)]
            known[node] = builder.value(same[0]) if same else _baked(builder, node, tensor)
        elif type(spec.arg).__name__ == "TensorArgument":
            known[node] = builder.value(f"in{taken}")
            taken += 1
        else:
            known[node] = getattr(spec.arg, "value", None)
    return known


def _precisions(builder: Builder, program: Any) -> None:
    """As the reference has it: a type that tensors are held in is a way of storing them, another one is meant."""
    given = {tensor.dtype for tensor in builder.tensors.values()}
    output = next(node for node in program.graph.nodes if node.op == "output")
    results = {str(leaf.meta["val"].dtype) for leaf in output.args[0] if hasattr(leaf, "meta")}
    builder.held = frozenset(given)
    builder.wide = "f64" in given and "f32" not in given and "torch.float64" in results


def _same_memory(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or one.stride() != other.stride():
        return False
    return bool(one.numel()) and one.data_ptr() == other.data_ptr()


def _baked(builder: Builder, node: Any, tensor: Any) -> Value:
    """A tensor made inside forward, or held as a plain attribute: its numbers go into the source."""
    dtype = builder.working(short_dtype(tensor.dtype))
    numbers = tensor.detach().flatten().tolist()
    shape = tuple(tensor.shape)
    if len(numbers) <= 1:
        return builder.constant(numbers[0] if numbers else 0, dtype, shape)
    if len(numbers) > _MOST_BAKED:
        raise UnsupportedError(
            f"expected constant tensors of at most {_MOST_BAKED} elements outside parameters and buffers, "
            f"got one of shape {shape}{''.join(map(recorded_line, list(node.users)[:1]))}; register it with "
            "self.register_buffer"
        )
    builder.node_name, builder.origin = node.name, "constant"
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
        builder.place = partial(recorded_line, node)
        builder.given = node.args[0].meta.get("val") if node.args and hasattr(node.args[0], "meta") else None
        builder.node_name, builder.origin, builder.meta = node.name, str(node.target), node.meta.get("val")
        args, kwargs = _resolved(node.args, known), _resolved(node.kwargs, known)
        known[node] = builder.rounded(_handled(builder, args, kwargs), builder.meta)
    return results


def _handled(builder: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    try:
        return HANDLERS[builder.origin](builder, *args, **kwargs)
    except EvoforgeError:
        raise
    except Exception as error:  # boundary: torch calls operators in more ways than any handler knows
        raise UnsupportedError(
            f"expected arguments of {builder.origin} that the lowering covers{builder.place()}, got "
            f"{type(error).__name__}: {error}; "
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
