"""One handler per aten operator, a file per family; importing this package fills `HANDLERS`."""

from evoforge.lowering.operators import (
    activations,
    attention,
    bags,
    contractions,
    folds,
    indexing,
    norms,
    orders,
    pointwise,
    pooling,
    reductions,
    scans,
    scatter,
    views,
)
from evoforge.lowering.operators.builder import Builder, Value
from evoforge.lowering.operators.registry import HANDLERS, register

__all__ = ["HANDLERS", "Builder", "Value", "register"]

_FAMILIES = (
    activations,
    attention,
    bags,
    contractions,
    folds,
    indexing,
    norms,
    orders,
    pointwise,
    pooling,
    reductions,
    scans,
    scatter,
    views,
)
