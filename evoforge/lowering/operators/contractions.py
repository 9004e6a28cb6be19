"""Matrix products and convolutions: Reduce(sum) of products, with guards where a window leaves the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evoforge.lowering.index import add, axis, const, floordiv, scale
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Guard
from evoforge.lowering.operators.builder import Builder, Value, op
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.views import behind, guarded

__all__ = ["product_sum", "sent"]

Index = list[Affine]


def _d(dim: int) -> Affine:
    return axis(f"d{dim}")


def product_sum(
    b: Builder, x: Value, y: Value, x_letters: str, y_letters: str, out: str, t: str, hint: str = ""
) -> Value:
    """Einstein summation of two values; letters not in `out` are summed, in order of appearance."""
    sizes: dict[str, int] = {}
    for letters, value in ((x_letters, x), (y_letters, y)):
        for letter, size in zip(letters, value.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1)) if size else 0
    summed = [letter for letter in dict.fromkeys(x_letters + y_letters) if letter not in out]
    shape = [sizes[letter] for letter in out]

    def product(at: dict[str, Affine], e: dict[str, int]) -> Expr:
        left = x.read([at[letter] for letter in x_letters], e, t)
        return op("mul", left, y.read([at[letter] for letter in y_letters], e, t), dtype=t)

    if not summed:
        return b.map(shape, t, lambda i, e: product(dict(zip(out, i, strict=True)), e), hint)

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        return product(dict(zip([*out, *summed], [*i, *r], strict=True)), e)

    return b.sum(shape, [sizes[letter] for letter in summed], t, body, hint)


@register("mm", "bmm", "matmul", "mv", "dot", "_int_mm")
def _matmul(b: Builder, x: Value, y: Value) -> Value:
    """torch.matmul: one-dimensional sides are vectors, leading dimensions broadcast."""
    t = b.out_dtype()
    batch = "abcdefgh"[: max(x.rank, y.rank, 2) - 2]
    left = "k" if x.rank == 1 else batch[len(batch) - (x.rank - 2) :] + "ik"
    right = "k" if y.rank == 1 else batch[len(batch) - (y.rank - 2) :] + "kj"
    out = batch + ("i" if x.rank > 1 else "") + ("j" if y.rank > 1 else "")
    return product_sum(b, x, y, left, right, out, t)


@register("_cdist_forward")
def _distances(b: Builder, x: Value, y: Value, p: float, *_: Any) -> Value:
    """The p-norms of all differences of a row of `x` and a row of `y`; 0 counts those that are not 0."""
    t = b.out_dtype()

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        batch, row, column = i[:-2], i[-2], i[-1]
        gap = op("sub", x.read([*batch, row, *r], e, t), y.read([*batch, column, *r], e, t), dtype=t)
        if p == 0:
            return Cast(op("ne", gap, Const(0.0, t), dtype="bool"), t)
        if p == 2:
            return op("mul", gap, gap, dtype=t)
        size = op("abs", gap, dtype=t)
        return size if p in (1, math.inf) else op("pow", size, Const(p, t), dtype=t)

    monoid = "max" if p == math.inf else "sum"
    found = b.reduce(b.out_shape(), x.shape[-1:], t, monoid, body)[0]
    if p in (0, 1, math.inf):
        return found
    if p == 2:
        return b.map(found.shape, t, lambda i, e: op("sqrt", found.read(i, e), dtype=t))
    return b.map(found.shape, t, lambda i, e: op("pow", found.read(i, e), Const(1 / p, t), dtype=t))


def _plus(b: Builder, product: Value, bias: Value | None, beta: float, alpha: float, t: str) -> Value:
    if bias is None or (beta == 0):
        if alpha == 1:
            return product
        return b.map(product.shape, t, lambda i, e: op("mul", product.read(i, e), Const(alpha, t), dtype=t))

    def body(i: Index, e: dict[str, int]) -> Expr:
        p, q = product.read(i, e), bias.read(i, e, t)
        p = p if alpha == 1 else op("mul", p, Const(alpha, t), dtype=t)
        q = q if beta == 1 else op("mul", q, Const(beta, t), dtype=t)
        return op("add", p, q, dtype=t)

    return b.map(product.shape, t, body)


@register("addmm", "baddbmm", "addmv", "addbmm")
def _addmm(b: Builder, bias: Value, x: Value, y: Value, beta: float = 1, alpha: float = 1) -> Value:
    t = b.out_dtype()
    if "addbmm" in b.origin and "baddbmm" not in b.origin:
        product = product_sum(b, x, y, "bik", "bkj", "ij", t, "product")
    elif y.rank == 1:
        product = product_sum(b, x, y, "ik", "k", "i", t, "product")
    elif x.rank == 2:
        product = product_sum(b, x, y, "ik", "kj", "ij", t, "product")
    else:
        product = product_sum(b, x, y, "bik", "bkj", "bij", t, "product")
    return _plus(b, product, bias, beta, alpha, t)


@register("linear")
def _linear(b: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    t = b.out_dtype()
    batch = "abcdefgh"[: x.rank - 1]
    if weight.rank == 1:
        product = product_sum(b, x, weight, batch + "k", "k", batch, t, "product")
    else:
        product = product_sum(b, x, weight, batch + "k", "ok", batch + "o", t, "product")
    return _plus(b, product, bias, 1, 1, t)


@register("einsum")
def _einsum(b: Builder, equation: str, operands: Sequence[Value], **_: Any) -> Value:
    """One or two operands at a time, left to right; an ellipsis stands for leading letters."""
    t = b.out_dtype()
    inputs, out = _equation(equation.replace(" ", ""), operands)
    value, letters = operands[0], inputs[0]
    value, letters = _diagonals(value, letters)
    for step, (other, names) in enumerate(zip(operands[1:], inputs[1:], strict=True), 1):
        other, names = _diagonals(other, names)
        later = out + "".join(inputs[step + 1 :])
        keep = "".join(letter for letter in dict.fromkeys(letters + names) if letter in later)
        keep = out if step == len(operands) - 1 else keep
        value, letters = product_sum(b, value, other, letters, names, keep, t, "" if keep == out else "part"), keep
    if letters == out:
        return value
    shape = [value.shape[letters.index(letter)] for letter in out]
    summed = [letter for letter in letters if letter not in out]
    if not summed:
        return value.viewed(shape, [_d(out.index(letter)) for letter in letters])

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        at = dict(zip([*out, *summed], [*i, *r], strict=True))
        return value.read([at[letter] for letter in letters], e, t)

    return b.sum(shape, [value.shape[letters.index(letter)] for letter in summed], t, body)


@register("_trilinear")
def _trilinear(
    b: Builder, x: Value, weight: Value, y: Value, absent_in_x: Sequence[int], absent_in_weight: Sequence[int],
    absent_in_y: Sequence[int], summed: Sequence[int], unroll_dim: int = 1,
) -> Value:  # fmt: skip
    """Σ x · weight · y over `summed`, each without some of the dimensions: what torch.nn.Bilinear becomes."""
    every = "abcdefgh"[: x.rank + len(absent_in_x)]
    has = [
        "".join(c for at, c in enumerate(every) if at not in gone)
        for gone in (absent_in_x, absent_in_weight, absent_in_y)
    ]
    out = "".join(c for at, c in enumerate(every) if at not in summed)
    return _einsum(b, f"{','.join(has)}->{out}", (x, weight, y))


def _equation(equation: str, operands: Sequence[Value]) -> tuple[list[str], str]:
    left, _, right = equation.partition("->")
    parts = left.split(",")
    free = [chr(code) for code in range(0x3B1, 0x3C9)]  # Greek letters cannot clash with torch's
    widths = [value.rank - len(part.replace("...", "")) for part, value in zip(parts, operands, strict=True)]
    dots = "".join(free[: max(width if "..." in part else 0 for part, width in zip(parts, widths, strict=True))])
    if "->" not in equation:
        letters = sorted(set(left) - set(".,"))
        right = "..." * ("..." in left) + "".join(c for c in letters if left.count(c) == 1)
    made = [
        part.replace("...", dots[len(dots) - width :] if width else "")
        for part, width in zip(parts, widths, strict=True)
    ]
    return made, right.replace("...", dots)


def _diagonals(value: Value, letters: str) -> tuple[Value, str]:
    """A letter that occurs twice reads the diagonal."""
    once = "".join(dict.fromkeys(letters))
    if once == letters:
        return value, letters
    shape = [value.shape[letters.index(letter)] for letter in once]
    return value.viewed(shape, [_d(once.index(letter)) for letter in letters]), once


# convolution


@register("convolution")
def _convolution(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """out[n, o, y…] = Σ over (c, k…) of x[n, c, y·stride − padding + k·dilation] · w[o, c, k]; then the bias."""
    t, shape = b.out_dtype(), b.out_shape()
    rank = len(shape) - 2
    stride, padding, dilation = (_each(p, rank) for p in (stride, padding, dilation))
    batched = x if x.rank == len(shape) else x.viewed((1, *x.shape), [_d(k + 1) for k in range(x.rank)])
    make = _transposed_body if transposed else _direct_body
    per_in = batched.shape[1] // groups
    body = make(batched, weight, stride, padding, dilation, groups, t)
    product = b.sum(shape, [per_in, *weight.shape[2:]], t, body, "" if bias is None else "product")
    if bias is None:
        return product
    given = bias
    return b.map(shape, t, lambda i, e: op("add", product.read(i, e), given.read([i[1]], e, t), dtype=t), "bias")


def _each(values: Sequence[int], rank: int) -> list[int]:
    return list(values) if len(values) == rank else [values[0]] * rank


def _direct_body(
    x: Value, weight: Value, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int, t: str
) -> Any:
    per_out, per_in = weight.shape[0] // groups, weight.shape[1]

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        channel = add(scale(floordiv(i[1], per_out, e), per_in), r[0])
        at = [
            add(scale(i[2 + k], stride[k]), const(-padding[k]), scale(r[1 + k], dilation[k]))
            for k in range(len(stride))
        ]
        read = guarded(x, [i[0], channel, *at], e, 0.0)
        return op("mul", read, weight.read([i[1], *r], e, t), dtype=t)

    return body


def _transposed_body(
    x: Value, weight: Value, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int, t: str
) -> Any:
    per_in, per_out = x.shape[1] // groups, weight.shape[1]

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        group = floordiv(i[1], per_out, e)
        channel = add(scale(group, per_in), r[0])
        own = add(i[1], scale(group, -per_out))
        read = sent(x, [i[0], channel], i[2:], r[1:], stride, padding, dilation, e, t)
        return op("mul", read, weight.read([channel, own, *r[1:]], e, t), dtype=t)

    return body


def sent(
    x: Value, lead: Index, place: Index, taps: Index, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], e: dict[str, int], t: str,
) -> Expr:  # fmt: skip
    """What arrives at `place` where input y sends to y·stride − padding + tap·dilation; 0 where no input does.

    Read backwards, with a divisibility guard. The last dimensions of `x`, behind `lead`, are the y.
    """
    at, guards = [], []
    for k, size in enumerate(x.shape[len(lead) :]):
        back = add(place[k], const(padding[k]), scale(taps[k], -dilation[k]))
        if stride[k] > 1:
            guards.append(Guard(back, "divides", stride[k]))
        guards += [Guard(back), Guard(add(const((size - 1) * stride[k]), scale(back, -1)))]
        at.append(floordiv(back, stride[k], e))
    return behind(x.read([*lead, *at], e, t), guards, e, 0.0, t)
