"""What modules hold beside their parameters, and what forward does to it. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils import _pytree as pytree

from evoforge.evaluation.worker_tensors import TORCH_DTYPES

__all__ = ["adopt_tensors", "kept", "share_plain_tensors"]

_MOST_DIMS = 8  # of a tensor in the C ABI


@contextlib.contextmanager
def kept(model: torch.nn.Module) -> Iterator[None]:
    """Buffers that forward assigns anew are the old ones again afterwards: no call sees what another one left."""
    before = [(module, dict(module._buffers)) for module in model.modules() if module._buffers]
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
    weights = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if (
                type(value) is torch.Tensor
                and value.numel() > 1
                and value.dim() <= _MOST_DIMS
                and value.layout == torch.strided
                and value.device.type == "cpu"
                and value.dtype in TORCH_DTYPES.values()
                and value.untyped_storage().data_ptr() not in weights
                and not hasattr(type(module), name)
            ):
                del vars(module)[name]
                whole = value.untyped_storage().nbytes() == value.nbytes
                module.register_buffer(name, value if whole else value.clone(), persistent=False)


def share_plain_tensors(old: torch.nn.Module, new: torch.nn.Module) -> None:
    """Gives `new` the tensors that `old` still holds as plain attributes: a kernel has their numbers in its source."""
    modules, weights = dict(new.named_modules()), {id(one) for one in (*old.parameters(), *old.buffers())}
    for name, module in old.named_modules():
        for key, value in vars(module).items():
            held = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
            if name in modules and held and not any(id(leaf) in weights for leaf in held):
                modules[name].__dict__[key] = value
