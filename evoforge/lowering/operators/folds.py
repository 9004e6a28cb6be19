"""Patches that are added up where they overlap (torch.nn.Fold), read backwards as a transposed convolution is."""

from __future__ import annotations

from collections.abc import Sequence

from evoforge.lowering.ir import Affine, Expr
from evoforge.lowering.operators.builder import Builder, Value
from evoforge.lowering.operators.contractions import sent
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.views import reshaped

__all__: list[str] = []


@register("col2im")
def _fold(
    b: Builder,
    x: Value,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """out[n, c, y…] = Σ over k… of the patch at which tap k reaches y."""
    t, shape = b.out_dtype(), b.out_shape()
    walks = [
        (size[k] + 2 * padding[k] - dilation[k] * (kernel[k] - 1) - 1) // stride[k] + 1 for k in range(len(kernel))
    ]
    lead = shape[: len(shape) - len(kernel)]
    patches = reshaped(x, (*lead, *kernel, *walks))

    def body(i: list[Affine], r: list[Affine], e: dict[str, int]) -> Expr:
        outer, place = i[: len(lead)], i[len(lead) :]
        return sent(patches, [*outer, *r], place, r, stride, padding, dilation, e, t)

    return b.sum(shape, kernel, t, body)
