"""What modules hold beside their parameters, and what forward does to it. Child only."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from evoforge.evaluation.worker_tensors import TORCH_DTYPES

__all__ = ["adopt_globals", "adopt_tensors", "kept", "share_plain_tensors"]

_MOST_DIMS = 8  # of a tensor in the C ABI


@contextlib.contextmanager
def kept(model: torch.nn.Module) -> Iterator[None]:
    """Buffers that forward assigns anew are the old ones again afterwards, and those that it registers gone: no call
    sees what another one left."""
    modules = [module for module in model.modules() if isinstance(module._buffers, dict)]  # TorchScript keeps its own
    before = [(module, dict(module._buffers)) for module in modules]
    try:
        yield
    finally:
        for module, buffers in before:
            module._buffers.clear()
            module._buffers.update(buffers)


def adopt_tensors(model: torch.nn.Module) -> None:
    """Makes buffers, outside of the state dict, of the tensors that modules hold as plain attributes.

    Single numbers stay as they are, and so does what is no dense tensor of a covered dtype, lies in a weight's
    memory, or is hidden by an attribute of the class. Exports do the same (``templates/export/_runtime.py``).
    """
    weights = _memory(model)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if _fits(value, weights) and not hasattr(type(module), name):
                del vars(module)[name]
                whole = value.untyped_storage().nbytes() == value.nbytes
                module.register_buffer(name, value if whole else value.clone(), persistent=False)


def adopt_globals(model: torch.nn.Module, task: types.ModuleType, code: types.CodeType) -> None:
    """Makes such buffers also of the task's own top-level tensors that its functions read, get_inputs() left out.

    Forward goes on reading the global, which lies in the same memory.
    """
    weights, read = _memory(model), _names_in(code)
    for name, value in vars(task).items():
        if name in read and _fits(value, weights) and value.untyped_storage().nbytes() == value.nbytes:
            model.register_buffer(f"global_{name}", value, persistent=False)
            weights.add(value.untyped_storage().data_ptr())


def _memory(model: torch.nn.Module) -> set[int]:
    weights = (*model.parameters(), *model.buffers())
    return {one.untyped_storage().data_ptr() for one in weights if one.layout == torch.strided}


def _fits(value: Any, weights: set[int]) -> bool:
    return (
        type(value) is torch.Tensor
        and value.numel() > 1
        and value.dim() <= _MOST_DIMS
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.dtype in TORCH_DTYPES.values()
        and value.untyped_storage().data_ptr() not in weights
    )


def _names_in(code: types.CodeType) -> set[str]:
    """What functions and classes of a module look up, names of attributes among them."""
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    kept = [one for one in inner if one.co_name not in ("get_inputs", "get_init_inputs")]
    return {name for one in kept for name in (*one.co_names, *_names_in(one))}


def share_plain_tensors(old: torch.nn.Module, new: torch.nn.Module) -> None:
    """Gives `new` the tensors that `old` still holds as plain attributes: a kernel has their numbers in its source."""
    modules, weights = dict(new.named_modules()), {id(one) for one in (*old.parameters(), *old.buffers())}
    for name, module in old.named_modules():
        for key, value in vars(module).items():
            held = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
            if name in modules and held and not any(id(leaf) in weights for leaf in held):
                modules[name].__dict__[key] = value
