"""Where an index could as well be another one: what was chosen among. Child only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from evoforge.evaluation.worker_tensors import is_floating

__all__ = ["OtherOrder", "Picks"]

_MOST = 1 << 20
"""Pairs for one output; where more would serve, the index says nothing and stays exact."""
_LONGEST = 1 << 28  # comparisons that finding them may take

_FIRST = ("argmax", "argmin", "max", "min")
_ANY = ("topk", "sort", "argsort", "kthvalue", "median", "nanmedian")
"""Whose index is that of the first of equal values, and where torch does not say which of them it is."""
_DIM_AT = {"topk": 2, "kthvalue": 2}  # among the arguments; else 1
_SORTED_AT = 4
_BOUNDS_AT = {"searchsorted": (0, "sorted_sequence"), "bucketize": (1, "boundaries")}
_ASKS = frozenset(("__get__", "__len__", "dim", "ndimension", "numel", "nelement", "size", "stride", "is_contiguous"))
"""What looks at a tensor and not at its elements."""
_STEPS = frozenset(
    (
        "ceil",
        "fake_quantize_per_channel_affine",
        "fake_quantize_per_tensor_affine",
        "fix",
        "floor",
        "floor_divide",
        "floordiv",
        "fmod",
        "frac",
        "heaviside",
        "mod",
        "remainder",
        "rfloordiv",
        "rmod",
        "round",
        "sgn",
        "sign",
        "trunc",
    )
)
"""What gives floating numbers that jump."""
_SATURATE = frozenset(
    (
        "clamp",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "glu",
        "hardsigmoid",
        "hardtanh",
        "relu6",
        "sigmoid",
        "softmax",
        "softmin",
        "tanh",
    )
)
_SATURATE_INSIDE = frozenset(
    (
        "gru",
        "gru_cell",
        "lstm",
        "lstm_cell",
        "multi_head_attention_forward",
        "rnn_tanh",
        "rnn_tanh_cell",
        "scaled_dot_product_attention",
    )
)
"""What goes from one end to another within a few units, of its argument or of products of its arguments."""
_BLURRED = 2.0**18
"""Of numbers as large as this a rounding is as much as makes a step of it, once there are some terms."""
_CASTS = frozenset(("byte", "char", "int", "long", "short", "to", "type"))
_SAME = frozenset(("clone", "contiguous", "detach", "int", "long", "reshape", "to", "type", "view"))
"""What gives the same whole numbers in the same order, where as many of them come out, contiguous."""


@dataclass
class _Pick:
    """`chosen` has `k` indices into `dim` for every row of `values`: 1 of an extreme, more of a sort.

    `loose`: any of equal values serves; `tied`: and there are some among those chosen, or their order is nobody's.
    """

    chosen: torch.Tensor
    values: torch.Tensor
    dim: int | None
    loose: bool
    tied: bool = False
    version: int = 0  # of `values`: what is changed in place afterwards says nothing any more
    held: list[tuple[torch.Tensor, int]] = field(default_factory=list)  # what has the same indices, with versions
    used: bool = False  # by what computes on
    given: bool = False  # of an input or a weight as it came
    change2: torch.Tensor | None = None  # sum of squared changes of `values`

    @property
    def inner(self) -> int:
        """Elements of one step along `dim`."""
        if self.dim is None or not self.values.dim():
            return 1
        return math.prod(self.values.shape[self.dim % self.values.dim() + 1 :])

    @property
    def steps(self) -> int:
        """Indices for each row."""
        return int(self.chosen.numel() // max(self.rows(self.values).shape[0], 1))

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """(rows, n) of a tensor like `values`."""
        if self.dim is None or not tensor.dim():
            return tensor.reshape(1, -1)
        return tensor.movedim(self.dim, -1).reshape(-1, tensor.shape[self.dim])

    def heights(self) -> torch.Tensor:
        """(rows, n): the values, or where whole numbers may be too large for a float64 their ranks."""
        if self.values.is_floating_point():
            return self.rows(self.values.double())
        return self.rows(torch.unique(self.values, return_inverse=True)[1].double())

    def places(self) -> torch.Tensor:
        """(rows, k): the element of `chosen` that has the j-th index of a row."""
        count = self.chosen.numel()
        inner = self.inner
        outer = self.values.numel() // max(self.rows(self.values).shape[1] * inner, 1)
        return torch.arange(count).reshape(outer, -1, inner).movedim(1, 2).reshape(outer * inner, -1)

    def kept(self, output: torch.Tensor) -> bool:
        """Whether an output has these indices, in their order, as they were chosen."""
        return self.values._version == self.version and any(
            output.data_ptr() == one.data_ptr() and output.numel() == one.numel() and output.dtype == one.dtype
            and one._version == version and (_layout(output) == _layout(one) or _plain(output, one))
            for one, version in self.held
        )  # fmt: skip


class Picks(TorchFunctionMode):  # type: ignore[misc]
    """While active, notes what took an index along a dimension: argmax, argmin, max, min, topk, sort, argsort, kthvalue
    and median, with what it was taken of.

    An index among *computed* floating values is right if the value there is within the tolerance of
    the one that double precision chooses (docs/tolerance.md): in single precision two values that lie close can
    change places. Of values that are inputs as they came the index is exact. Of equal values the first
    counts for extremes and stable sorts; of what else sorts, torch names any.

    Args:
        extremes: argmax, argmin, max and min are noted, too.
        single: what computes may do so in single precision, whose range running products can leave.
    """

    def __init__(self, *, extremes: bool = True, single: bool = False) -> None:
        super().__init__()
        self._single = single
        self._names = _FIRST + _ANY if extremes else _ANY
        self._made: list[_Pick] = []
        self._outputs: list[tuple[int, int, _Pick]] = []  # (place among the picks, output, pick)
        self.known: frozenset[int] = frozenset()
        """Outputs that are indices as they were chosen."""
        self.decides = False
        """Whether floating numbers were rounded, compared or chosen among, or so large that a function steps."""
        self.crowded = False
        """Whether more indices would serve than are kept: none of them says anything."""
        self.undefined = False
        """Whether a floating number was made an integer that cannot hold it, or a product came back from where single
        precision does not reach: nobody says what comes of it."""
        self.unsorted = False
        """Whether something was searched for among bounds that are not in order, which means nothing."""
        self.free: frozenset[int] = frozenset()
        """Outputs of which any of equal values serves, chosen among what rests on no such order itself."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        given = {id(leaf) for leaf in pytree.tree_leaves((args, named))} if self._made else set()
        touched = [pick for pick in self._made if any(id(one) in given and one._version == at for one, at in pick.held)]
        result = function(*args, **named)
        name = getattr(function, "__name__", "")
        self.undefined = (
            self.undefined or _overflows(name, args, result) or (self._single and _comes_back(name, args, named))
        )
        self.decides = self.decides or _decides(name, (args, named), result)
        for pick in touched:
            _follow(pick, name, result)
        if name in _BOUNDS_AT:
            self.unsorted |= _unsorted(name, args, named)
        if name in self._names:
            self._made += _picked(name, args, named, result)
        return result

    @property
    def ambiguous(self) -> bool:
        """Whether an index of one of equal values was computed with where torch names any; asked before `settle`."""
        return any(pick.tied and pick.used for pick in self._made)

    def settle(self, outputs: Sequence[torch.Tensor], places: Set[int]) -> None:
        """Forgets what is none of the outputs, as forward() returned them, or an exact index.

        `places` are addresses of storages: of forward's inputs and of weights.
        """
        for place, pick in enumerate(self._made):
            pick.given = pick.values.untyped_storage().data_ptr() in places
            found = [at for at, output in enumerate(outputs) if pick.kept(output)]
            self.known |= frozenset(found)
            if found and pick.given:
                pick.values = pick.values.clone()  # inputs are perturbed in place
            self._outputs += [(place, at, pick) for at in found if pick.loose or not pick.given]
        first = next((place for place, pick in enumerate(self._made) if pick.tied and pick.used), len(self._made))
        self.free = frozenset(at for place, at, pick in self._outputs if pick.loose and place <= first)
        self._made.clear()

    def equal(self) -> list[tuple[int, int, torch.Tensor]]:
        """(output, elements of one step along the dimension, values in rows) where any of equal values serves.

        And where several are chosen of values that may come out otherwise: each only once.
        """
        found = []
        for _, at, pick in self._outputs:
            if pick.values.numel() and (pick.loose or (pick.steps > 1 and not pick.given)):
                rows = pick.heights()
                if not pick.loose:  # those that are equal stand in their own order: none is another's equal
                    rows = torch.arange(rows.shape[1], dtype=torch.float64).expand(rows.shape)
                found.append((at, pick.inner, rows.contiguous()))
        return found

    def add_change(self, other: Picks) -> None:
        """Takes note of what the same picks were made of in a perturbed run."""
        for place, pick in {place: pick for place, _, pick in self._outputs}.items():
            moved = other._made[place].values if place < len(other._made) else pick.values[:0]
            if pick.values.shape == moved.shape:
                change2 = (moved.double() - pick.values.double()).square_()
                pick.change2 = change2 if pick.change2 is None else pick.change2.add_(change2)

    def alternatives(self, *, runs: int, factor: float, u: float, step: float) -> torch.Tensor:
        """(output, element, index) of all that would serve as well, int64, shape (k, 3).

        Args:
            runs: how many perturbed runs were noted.
            factor, u: of the tolerance, factor · (rms change + u·|value|).
            step: by what part of themselves inputs were perturbed in those runs; what u makes is u / step of it.
        """
        rows = []
        for _, at, pick in self._outputs:
            if pick.change2 is not None and not pick.given and pick.values.is_floating_point():
                found = _close(pick, pick.change2 * (u / step) ** 2, runs, factor, u)
                if len(found) > _MOST:
                    self.crowded = True
                else:
                    rows.append(torch.nn.functional.pad(found, (1, 0), value=at))
        return torch.cat(rows) if rows else torch.zeros((0, 3), dtype=torch.int64)


def _overflows(name: str, args: Any, result: Any) -> bool:
    """Whether a cast to integers is of numbers that they cannot hold."""
    if name not in _CASTS or not (
        isinstance(result, torch.Tensor) and args and is_floating(args[0]) and result.numel()
    ):
        return False
    if result.is_floating_point() or result.dtype == torch.bool:
        return False
    held, whole = torch.iinfo(result.dtype), _all_of(args[0]).detach().double().trunc()
    return not bool(((whole >= held.min) & (whole <= held.max)).all())


def _comes_back(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether a product of doubles, factor by factor, leaves the range of single precision and is within it later.

    Torch multiplies floats in double on CPUs and in single precision on GPUs, where an overflow stays one.
    """
    if name.rstrip("_") not in ("cumprod", "prod") or not args or not is_floating(args[0]) or not args[0].numel():
        return False
    if _wrapped(args[0]):  # its dimensions are not those of what it stands for
        return False
    dim = args[1] if len(args) > 1 else named.get("dim")
    x, dim = (args[0].reshape(-1), 0) if dim is None else (args[0], dim)
    steps, held = x.detach().double().cumprod(dim).abs_(), torch.finfo(torch.float32)
    out = (steps > held.max) | ((steps > 0) & (steps < held.tiny))
    within = (steps >= held.tiny) & (steps <= held.max)
    return bool((within & (out.cumsum(dim) > 0)).any())


def _decides(name: str, given: Any, result: Any) -> bool:
    """Whether an operator makes whole numbers or bools of floating ones, or steps, be it for so large numbers only."""
    floats = [leaf for leaf in pytree.tree_leaves(given) if is_floating(leaf)] if name not in _ASKS else []
    if not floats:
        return False
    plain = name.strip("_")
    if plain in _SATURATE or plain in _SATURATE_INSIDE:
        least = _BLURRED if plain in _SATURATE else math.sqrt(_BLURRED)
        return any(one.numel() and bool((_all_of(one).detach().abs() >= least).any()) for one in floats)
    made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    stepped = name.strip("_") in _STEPS or (name == "div" and given[1].get("rounding_mode") is not None)
    return bool(made) and (stepped or not all(leaf.is_floating_point() for leaf in made))


class OtherOrder(TorchFunctionMode):  # type: ignore[misc]
    """While active, equal values change places wherever torch does not say which of them comes first.

    What need not be sorted (``topk(sorted=False)``) comes the other way round, too.

    Args:
        order: of so many values, their places in the order in which equal ones come.
    """

    def __init__(self, order: Callable[[int], torch.Tensor]) -> None:
        super().__init__()
        self._order = order

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named, name = dict(kwargs or {}), getattr(function, "__name__", "")
        values, dim = _chosen_among(name, args, named)
        free = name in _ANY and not named.get("stable") and "out" not in named
        if not free or values is None or not values.dim() or dim is None or _wrapped(values):
            return function(*args, **named)
        rest = list(args[1:])
        for key in ("input", "self"):
            named.pop(key, None)
        order = self._order(values.shape[dim])
        if name in ("sort", "argsort"):  # by a stable one equal values surely come as they stand
            named |= {"stable": True, **dict(zip(("dim", "descending"), rest, strict=False))}
            rest = []
        result = function(values.index_select(dim, order), *rest, **named)
        if name == "argsort":
            return order[result]
        found = result.values, order[result.indices]
        if name == "topk" and not _sorted(args, named):
            found = found[0].flip(dim), found[1].flip(dim)
        return type(result)(found)


def _chosen_among(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[torch.Tensor | None, int | None]:
    """The values that an operator chooses among, and along which dimension (None: all)."""
    values = args[0] if args else named.get("input", named.get("self"))
    at, default = _DIM_AT.get(name, 1), None if name in (*_FIRST, "median", "nanmedian") else -1
    dim = args[at] if len(args) > at else named.get("dim", named.get("axis", default))
    return values if isinstance(values, torch.Tensor) else None, dim if isinstance(dim, int) else None


def _picked(name: str, args: Sequence[Any], named: Mapping[str, Any], result: Any) -> list[_Pick]:
    """What an operator chose; nothing where it gives no index, or the exact one."""
    chosen = result if name.startswith("arg") else getattr(result, "indices", None)
    values, dim = _chosen_among(name, args, named)
    if not isinstance(chosen, torch.Tensor) or values is None or _wrapped(values):
        return []
    loose = name in _ANY and not named.get("stable")
    if not loose and not values.is_floating_point():
        return []
    pick = _Pick(chosen, values, dim, loose, version=values._version, held=[(chosen, chosen._version)])
    if name == "topk" and not _sorted(args, named):
        pick.loose, pick.tied, pick.used = False, True, True
    else:
        pick.tied = loose and _tied(pick)
    return [pick]


def _follow(pick: _Pick, name: str, result: Any) -> None:
    """Notes that something was done with the indices: asked for their shape, held otherwise, or computed with."""
    same = isinstance(result, torch.Tensor) and result.dtype in (torch.int64, torch.int32)
    same = same and result.numel() == pick.chosen.numel()
    viewed = same and result.data_ptr() == pick.chosen.data_ptr() and result._version == pick.held[0][1]
    viewed = viewed and _plain(result, pick.chosen)
    if viewed or (same and name in _SAME):
        pick.held.append((result, result._version))
    elif name not in _ASKS or isinstance(result, torch.Tensor):
        pick.used = True


def _unsorted(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    at, key = _BOUNDS_AT[name]
    bounds = args[at] if len(args) > at else named.get(key)
    if not isinstance(bounds, torch.Tensor) or _wrapped(bounds) or named.get("sorter") is not None:
        return False
    return bool((bounds[..., 1:] < bounds[..., :-1]).any())


def _layout(tensor: torch.Tensor) -> tuple[object, object]:
    return tensor.shape, tensor.stride()


def _plain(*tensors: torch.Tensor) -> bool:
    return all(one.is_contiguous() for one in tensors)


def _sorted(args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    return bool(args[_SORTED_AT] if len(args) > _SORTED_AT else named.get("sorted", True))


def _wrapped(tensor: torch.Tensor) -> bool:
    """Whether it stands for many (vmap), and has no storage."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def _all_of(tensor: torch.Tensor) -> torch.Tensor:
    """What it stands for as a whole, whose values can be asked for."""
    while _wrapped(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _tied(pick: _Pick) -> bool:
    """Whether a chosen value stands in its row more than once."""
    if not pick.values.numel() or not pick.chosen.numel():
        return False
    values = pick.heights()
    chosen = values.gather(1, pick.chosen.reshape(-1)[pick.places()])
    ordered = values.sort(-1).values.contiguous()
    first, last = (torch.searchsorted(ordered, chosen.contiguous(), right=right) for right in (False, True))
    return bool((last - first > 1).any())


def _close(pick: _Pick, change2: torch.Tensor, runs: int, factor: float, u: float) -> torch.Tensor:
    """(element, index) of the values within the tolerance of the chosen one, but not equal to it.

    Of a row that lies within it as a whole, equal ones too: that they are is an accident of rounding.
    """
    values, change2, places = pick.rows(pick.values.double()), pick.rows(change2), pick.places()
    found = []
    for at in places.T if values.numel() * places.shape[1] <= _LONGEST else places.T[:0]:
        chosen = pick.chosen.reshape(-1)[at].unsqueeze(1)
        best, change = values.gather(1, chosen), (change2.gather(1, chosen) / runs).sqrt_()
        near = (values - best).abs() <= factor * (change + u * best.abs()) + 2.0**-126
        other = values != best
        blurred = near.all(1, keepdim=True) & other.any(1, keepdim=True)
        row, index = torch.nonzero(near & (other | blurred)).unbind(1)
        found.append(torch.stack((at[row], index), 1))
    return torch.cat(found) if found else torch.zeros((0, 2), dtype=torch.int64)
