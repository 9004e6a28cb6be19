"""Which inputs start where an exported kernel takes none."""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

__all__ = ["astray"]

_ALIGN = 64  # as shared tensors lie, and as templates/export/_runtime.py asks for


def astray(model: object, inputs: list[Any]) -> list[int]:
    """The tensors among `inputs` that do not start at a multiple of 64 bytes: views like ``.imag``, NumPy's memory.

    Run beside the reference. A judged kernel gets copies that do, so that only whoever uses an export would notice.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(inputs) if hasattr(leaf, "data_ptr")]
    return [at for at, tensor in enumerate(tensors) if tensor.data_ptr() % _ALIGN]
