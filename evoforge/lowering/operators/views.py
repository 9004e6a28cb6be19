"""Views and copies: folded into load indices. Only cat and padding are stages of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evoforge.lowering.index import add, axis, bounds, const, floordiv, mod, scale
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Guard, Load, Op, Position, loads, rewrite
from evoforge.lowering.operators.builder import Builder, Value, where
from evoforge.lowering.operators.registry import register

__all__ = ["behind", "choose", "guarded", "reshaped"]


_IN_ORDER = 8


def _d(dim: int) -> Affine:
    return axis(f"d{dim}")


def _dim(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


def reshaped(x: Value, shape: Sequence[int]) -> Value:
    """Row-major reshape; dimensions that split or stay keep affine indices."""
    if math.prod(shape) == 0:
        return x.viewed(shape, [const(0)] * x.rank)
    steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    return _walked(x, shape, steps)


def _walked(x: Value, shape: Sequence[int], steps: Sequence[int], start: int = 0) -> Value:
    """Row-major memory in steps of elements along every dimension."""
    extents = {f"d{dim}": size for dim, size in enumerate(shape)}
    position = add(const(start), *(scale(_d(dim), steps[dim]) for dim in range(len(shape)) if shape[dim] > 1))
    index = []
    for dim, size in enumerate(x.shape):
        inner = math.prod(x.shape[dim + 1 :])
        index.append(mod(floordiv(position, inner, extents), size, extents))
    return x.viewed(shape, index)


@register("view", "_unsafe_view", "reshape", "view_copy", "_reshape_copy", "unflatten.int", "flatten.using_ints")
def _view(b: Builder, x: Value, *_: Any, **__: Any) -> Value:
    return reshaped(x, b.out_shape())


@register("unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims")
def _unit_dims(b: Builder, x: Value, *_: Any) -> Value:
    return reshaped(x, b.out_shape())


@register("alias", "clone", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "dropout", "native_dropout")
def _same(b: Builder, x: Value, *args: Any, **_: Any) -> Any:
    if "dropout" in b.origin and args[-1]:
        raise b.refuse("train=True (put the model in eval mode)")
    return (x, x) if "native_dropout" in b.origin else x


@register("_assert_tensor_metadata", "_assert_scalar", "_assert_async.msg", "sym_constrain_range_for_size")
def _nothing(b: Builder, *_: Any, **__: Any) -> None:
    return None


@register("permute", "permute_copy")
def _permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    dims = [_dim(dim, x.rank) for dim in dims]
    return x.viewed([x.shape[dim] for dim in dims], [_d(dims.index(dim)) for dim in range(x.rank)])


@register("transpose.int", "t")
def _transpose(b: Builder, x: Value, first: int = 0, second: int = 1) -> Value:
    if x.rank < 2:
        return x
    dims = list(range(x.rank))
    first, second = _dim(first, x.rank), _dim(second, x.rank)
    dims[first], dims[second] = dims[second], dims[first]
    return _permute(b, x, dims)


@register("expand", "broadcast_to", "expand_as")
def _expand(b: Builder, x: Value, *_: Any, **__: Any) -> Value:
    shape = b.out_shape()
    lead = len(shape) - x.rank
    return x.viewed(shape, [const(0) if size == 1 else _d(lead + dim) for dim, size in enumerate(x.shape)])


@register("copy")
def _copy(b: Builder, target: Value, source: Value, *_: Any) -> Value:
    value = source if source.shape == target.shape else _expand(b, source)
    t = b.out_dtype()
    if value.dtype == t:
        return value
    return b.map(value.shape, t, lambda index, extents: value.read(index, extents, t))


@register("select.int")
def _select(b: Builder, x: Value, dim: int, at: int) -> Value:
    dim = _dim(dim, x.rank)
    at = at % x.shape[dim]
    index = [_d(k) if k < dim else const(at) if k == dim else _d(k - 1) for k in range(x.rank)]
    return x.viewed(x.shape[:dim] + x.shape[dim + 1 :], index)


@register("slice.Tensor")
def _slice(
    b: Builder, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    dim = _dim(dim, x.rank)
    first = slice(start, end).indices(x.shape[dim])[0]
    index = [add(scale(_d(k), step), const(first)) if k == dim else _d(k) for k in range(x.rank)]
    return x.viewed(b.out_shape(), index)


@register("narrow")
def _narrow(b: Builder, x: Value, dim: int, start: int, length: int) -> Value:
    return _slice(b, x, dim, start, start + length)


@register("flip")
def _flip(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    turned = {_dim(dim, x.rank) for dim in dims}
    index = [add(const(x.shape[k] - 1), scale(_d(k), -1)) if k in turned else _d(k) for k in range(x.rank)]
    return x.viewed(x.shape, index)


@register("roll")
def _roll(b: Builder, x: Value, shifts: Sequence[int] | int, dims: Sequence[int] | int = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        return reshaped(_roll(b, reshaped(x, (math.prod(x.shape),)), shifts, [0]), x.shape)
    extents = {f"d{k}": size for k, size in enumerate(x.shape)}
    by = {k: sum(s for s, dim in zip(shifts, dims, strict=True) if _dim(dim, x.rank) == k) for k in range(x.rank)}
    index = [mod(add(_d(k), const(-by[k] % size)), size, extents) if by[k] else _d(k) for k, size in enumerate(x.shape)]
    return x.viewed(x.shape, index)


@register("unfold")
def _unfold(b: Builder, x: Value, dim: int, size: int, step: int) -> Value:
    dim = _dim(dim, x.rank)
    index = [add(scale(_d(k), step), _d(x.rank)) if k == dim else _d(k) for k in range(x.rank)]
    return x.viewed(b.out_shape(), index)


@register("diagonal")
def _diagonal(b: Builder, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    dim1, dim2 = _dim(dim1, x.rank), _dim(dim2, x.rank)
    shape = b.out_shape()
    along = _d(len(shape) - 1)
    at = {dim1: add(along, const(max(-offset, 0))), dim2: add(along, const(max(offset, 0)))}
    rest = iter(range(x.rank - 2))
    return x.viewed(shape, [at[k] if k in at else _d(next(rest)) for k in range(x.rank)])


@register("repeat")
def _repeat(b: Builder, x: Value, repeats: Sequence[int]) -> Value:
    shape = b.out_shape()
    extents = {f"d{k}": size for k, size in enumerate(shape)}
    lead = len(shape) - x.rank
    return x.viewed(shape, [mod(_d(lead + k), size, extents) for k, size in enumerate(x.shape)])


@register("pixel_shuffle")
def _pixel_shuffle(b: Builder, x: Value, factor: int) -> Value:
    lead = x.shape[:-3]
    channels, height, width = x.shape[-3] // factor**2, x.shape[-2], x.shape[-1]
    split = reshaped(x, (*lead, channels, factor, factor, height, width))
    at = len(lead)
    order = [*range(at), at, at + 3, at + 1, at + 4, at + 2]
    return reshaped(_permute(b, split, order), (*lead, channels, height * factor, width * factor))


def _pieces(b: Builder, x: Value, dim: int, sizes: Sequence[int]) -> tuple[Value, ...]:
    dim, start, made = _dim(dim, x.rank), 0, []
    for size in sizes:
        index = [add(_d(k), const(start)) if k == dim else _d(k) for k in range(x.rank)]
        made.append(x.viewed((*x.shape[:dim], size, *x.shape[dim + 1 :]), index))
        start += size
    return tuple(made)


@register("split_with_sizes", "split.sizes", "split_with_sizes_copy")
def _split_with_sizes(b: Builder, x: Value, sizes: Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    return _pieces(b, x, dim, sizes)


@register("split.Tensor")
def _split(b: Builder, x: Value, size: int, dim: int = 0) -> tuple[Value, ...]:
    whole = x.shape[_dim(dim, x.rank)]
    return _pieces(b, x, dim, [min(size, whole - at) for at in range(0, whole, size)])


@register("chunk")
def _chunk(b: Builder, x: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    return _split(b, x, -(-x.shape[_dim(dim, x.rank)] // chunks), dim)


@register("unbind.int")
def _unbind(b: Builder, x: Value, dim: int = 0) -> tuple[Value, ...]:
    return tuple(_select(b, x, dim, at) for at in range(x.shape[_dim(dim, x.rank)]))


# constants as values


@register("full", "full_like", "scalar_tensor", "ones", "ones_like", "zeros", "zeros_like", "new_full", "new_zeros",
          "new_ones", "empty.memory_format", "empty_permuted", "empty_like", "new_empty", "empty_strided")  # fmt: skip
def _filled(b: Builder, *args: Any, **_: Any) -> Value:
    name = b.origin.split(".")[1]
    fill: float | int | bool = 1 if "ones" in name else 0
    if name in ("full", "full_like"):
        fill = args[1]
    elif name == "new_full":
        fill = args[2]
    elif name == "scalar_tensor":
        fill = args[0]
    return b.constant(fill, b.out_dtype(), b.out_shape())


@register("fill.Scalar", "fill.Tensor")
def _fill(b: Builder, x: Value, value: Any) -> Value:
    if isinstance(value, Value):
        return _copy(b, x, value)
    return b.constant(value, b.out_dtype(), x.shape)


@register("arange.start_step", "arange.start", "arange")
def _arange(b: Builder, *args: Any, **_: Any) -> Value:
    start, step = (args[0], args[2] if len(args) > 2 else 1) if len(args) > 1 else (0, 1)
    t, shape = b.out_dtype(), b.out_shape()
    if isinstance(start, int) and isinstance(step, int):
        return Value(shape, Position(add(scale(_d(0), step), const(start)), t), t)
    return b.map(
        shape,
        t,
        lambda index, extents: Op(
            "add", (Op("mul", (Position(index[0], t), Const(float(step), t)), t), Const(float(start), t)), t
        ),
    )


@register("eye", "eye.m")
def _eye(b: Builder, *_: Any, **__: Any) -> Value:
    t = b.out_dtype()
    same = Op("eq", (Position(_d(0), "i64"), Position(_d(1), "i64")), "bool")
    return Value(b.out_shape(), same if t == "bool" else Cast(same, t), t)


# stages of their own


def guarded(value: Value, index: Sequence[Affine], extents: dict[str, int], other: float) -> Expr:
    """`value` at `index`, or `other` where an index is outside the value's shape."""
    guards: list[Guard] = []
    for at, size in zip(index, value.shape, strict=True):
        guards += [Guard(at), Guard(add(const(size - 1), scale(at, -1)))]
    return behind(value.read(index, extents), guards, extents, other, value.dtype)


def behind(found: Expr, guards: Sequence[Guard], extents: dict[str, int], other: float, dtype: str) -> Expr:
    """What was read, or `other` where a guard does not hold; those that always do are left out."""
    needed = tuple(guard for guard in guards if guard.kind == "divides" or bounds(guard.arg, extents)[0] < 0)
    if not any(loads(found)):  # a constant, or a position
        for guard in needed:
            at: Expr = Position(guard.arg, "i64")
            if guard.kind == "divides":
                holds = Op("eq", (Op("mod", (at, Const(guard.modulus, "i64")), "i64"), Const(0, "i64")), "bool")
            else:
                holds = Op("ge", (at, Const(0, "i64")), "bool")
            found = where(holds, found, Const(other, dtype), dtype)
        return found

    def visit(node: Any) -> Any:
        return Load(node.tensor, node.index, node.guards + needed, other) if isinstance(node, Load) else node

    result: Expr = rewrite(found, visit)
    return result


@register("cat")
def _cat(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    shape, t = b.out_shape(), b.out_dtype()
    dim = _dim(dim, len(shape))
    parts = [part for part in tensors if part.rank == len(shape) and part.shape[dim]]

    def body(index: list[Affine], extents: dict[str, int]) -> Expr:
        return choose(parts, dim, index, extents, t)

    return b.map(shape, t, body)


def choose(parts: Sequence[Value], dim: int, index: list[Affine], extents: dict[str, int], t: str) -> Expr:
    """The element of the part that `index[dim]`, counted from the first part's start, falls into."""
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + part.shape[dim])

    def one(number: int) -> Expr:
        part = parts[number]
        own = [add(at, const(-starts[number])) if k == dim else at for k, at in enumerate(index)]
        read = guarded(part, own, extents, 0.0) if len(parts) > 1 else part.read(own, extents)
        return read if part.dtype == t else Cast(read, t)

    def among(first: int, last: int) -> Expr:
        """One after the other where there are few; else halved, so that many do not nest as deep as they are many."""
        if last - first == 1:
            return one(first)
        cut = first + 1 if last - first <= _IN_ORDER else (first + last) // 2
        inside = Op("lt", (Position(index[dim], "i64"), Const(starts[cut], "i64")), "bool")
        return where(inside, among(first, cut), among(cut, last), t)

    return among(0, len(parts)) if parts else Const(0, t)


@register("slice_scatter")
def _slice_scatter(
    b: Builder, x: Value, source: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """``x[…, start:end:step, …] = source`` as a new tensor."""
    t, dim = b.out_dtype(), _dim(dim, x.rank)
    size, count = x.shape[dim], source.shape[dim]
    first = slice(start, end).indices(size)[0]
    if step == 1:
        parts = [_piece(x, dim, 0, first), source, _piece(x, dim, first + count, size)]
        parts = [part for part in parts if part.shape[dim]]
        return b.map(x.shape, t, lambda index, extents: choose(parts, dim, index, extents, t))

    def body(index: list[Affine], extents: dict[str, int]) -> Expr:
        # quotients and remainders of the position itself: these an axis can be split by
        at = add(floordiv(index[dim], step, extents), const(-(first // step)))
        own = [at if k == dim else place for k, place in enumerate(index)]
        read, kept = guarded(source, own, extents, 0.0), x.read(index, extents, t)
        found = read if source.dtype == t else Cast(read, t)
        here, last = Position(index[dim], "i64"), first + (count - 1) * step
        if last + step < size:
            found = where(Op("le", (here, Const(last, "i64")), "bool"), found, kept, t)
        if first >= step:
            found = where(Op("ge", (here, Const(first, "i64")), "bool"), found, kept, t)
        rest = Position(mod(index[dim], step, extents), "i64")
        return where(Op("eq", (rest, Const(first % step, "i64")), "bool"), found, kept, t)

    return b.map(x.shape, t, body)


@register("diagonal_scatter")
def _diagonal_scatter(b: Builder, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A new tensor with `source` as its diagonal: element k is (k, k + offset), or (k − offset, k) below."""
    t, row, column = b.out_dtype(), _dim(dim1, x.rank), _dim(dim2, x.rank)

    def body(index: list[Affine], extents: dict[str, int]) -> Expr:
        rest = [at for k, at in enumerate(index) if k not in (row, column)]
        read = guarded(source, [*rest, index[row if offset >= 0 else column]], extents, 0.0)
        off = Position(add(index[column], scale(index[row], -1)), "i64")
        found = read if source.dtype == t else Cast(read, t)
        return where(Op("eq", (off, Const(offset, "i64")), "bool"), found, x.read(index, extents, t), t)

    return b.map(x.shape, t, body)


@register("as_strided")
def _as_strided(b: Builder, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Value:
    if _is_diagonal(x, size, stride, offset):
        return x.viewed(size, [_d(0), _d(0)])
    last = (offset or 0) + sum((many - 1) * step for many, step in zip(size, stride, strict=True))
    if not b.given.is_contiguous() or b.given.storage_offset() or not math.prod(size) or last >= math.prod(x.shape):
        raise b.refuse("a tensor that is not contiguous from its first element on, or what lies behind it")
    return _walked(x, size, stride, offset or 0)


@register("as_strided_scatter")
def _as_strided_scatter(
    b: Builder, x: Value, source: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Value:
    if not _is_diagonal(x, size, stride, offset):
        raise b.refuse("anything but the diagonal of a matrix")
    return _diagonal_scatter(b, x, source)


def _is_diagonal(x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None) -> bool:
    """How ``fill_diagonal_`` sees it: a step of one row and one column, of a square in either order."""
    return x.rank == 2 and list(stride) == [x.shape[1] + 1] and not offset and list(size) == [min(x.shape)]


def _piece(x: Value, dim: int, begin: int, end: int) -> Value:
    shape = (*x.shape[:dim], max(0, end - begin), *x.shape[dim + 1 :])
    return x.viewed(shape, [add(_d(k), const(begin)) if k == dim else _d(k) for k in range(x.rank)])


@register("constant_pad_nd")
def _pad(b: Builder, x: Value, pad: Sequence[int], value: float | int | bool = 0) -> Value:
    shape, t = b.out_shape(), b.out_dtype()
    before = {x.rank - 1 - k: pad[2 * k] for k in range(len(pad) // 2)}

    def body(index: list[Affine], extents: dict[str, int]) -> Expr:
        own = [add(at, const(-before.get(k, 0))) for k, at in enumerate(index)]
        return guarded(x, own, extents, float(value))

    return b.map(shape, t, body)
