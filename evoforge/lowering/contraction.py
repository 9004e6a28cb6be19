"""Nests that are sums of products, and how they can be cut into register blocks.

A contraction (a matrix product, a convolution) is a reduction of *wide* factors, which vary along the
lane axis, times *narrow* ones, which do not. An output axis that only narrow factors have is walked by
the rows of a block: every wide vector that was loaded is used once per row of it. Goto and van de Geijn
2008 (ACM TOMS 34) for the packing of both operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evoforge.lowering.domain import Domain, Node
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import Expr
from evoforge.lowering.stages import dtype_of, factors, product

if TYPE_CHECKING:
    from evoforge.lowering.nests import Nest

__all__ = ["LONGEST", "Contraction", "Product", "find_contraction"]

LONGEST = 512
"""Sums longer than this are cut."""


@dataclass(frozen=True)
class Product:
    """One sum of products: Σ wide · narrow over the reduction of `node`."""

    node: Node
    wide: Expr
    narrow: Expr


@dataclass(frozen=True)
class Contraction:
    """`lane`: the axis of vectors; `block`: axes that rows of a register block can walk."""

    lane: str
    block: frozenset[str]
    products: tuple[Product, ...]


def find_contraction(domain: Domain, nest: Nest) -> Contraction | None:
    """The contraction that a nest is; None if it is something else, or if nothing would be used twice."""
    if len(nest.passes) != 1 or nest.chunked or not nest.passes[0].reduces or nest.passes[0].stores:
        return None
    one = nest.passes[0]
    written = [producer for t in one.row_stores if (producer := domain.producer(t)) is not None]
    lanes = [a for a in nest.rows if all(node.write.step(a) == 1 for node in written)]
    if len(lanes) != 1 or len({frozenset(node.reduction) for node in one.reduces}) != 1:
        return None
    lane, block = lanes[0], frozenset(nest.rows)
    products = []
    for node in one.reduces:
        found = _product(domain, node, lane)
        if found is None:
            return None
        products.append(found)
        block &= axes_of(found.narrow) - axes_of(found.wide)
    if not block or any(lane in node.axes and block & set(node.axes) for node in (*one.heads, *one.maps)):
        return None
    return Contraction(lane, block, tuple(products))


def _product(domain: Domain, node: Node, lane: str) -> Product | None:
    if node.kind != "reduce" or node.monoid != "sum" or dtype_of(node.body, domain.tensors) != "f32":
        return None
    every = factors(node.body)
    wide = [factor for factor in every if lane in axes_of(factor)]
    narrow = [factor for factor in every if lane not in axes_of(factor)]
    return Product(node, product(wide), product(narrow)) if wide and narrow else None
