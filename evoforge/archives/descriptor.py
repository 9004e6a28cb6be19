"""From raw facts to a cell: one small function per axis, by name in a registry.

A measure that the facts cannot tell is None (unresolved), and a kernel with an unresolved measure
has no cell. A campaign stores its descriptor with `to_json`; levels never change their meaning
within one version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evoforge.core import Cell
from evoforge.errors import UsageError

__all__ = ["AXES", "VERSION", "Axis", "Descriptor", "fusion", "memory", "tiling"]

VERSION = 2

_TENSOR_SHARE = 0.2  # of the largest tensor: scratch that holds this much is an intermediate
_REGISTER_FILE = 512  # bytes of scratch up to which a buffer is a handful of spilled accumulators
_REREAD = 1.1
_SEEN = 0.9  # of every result's bytes

Facts = Mapping[str, Any]


def tiling(facts: Facts) -> int | None:
    """0 none, 1 a register block or one tile, 2 two levels, 3 three or more.

    Loops that walk within an outer loop's step, as far as the object still has that many loops, and
    1 more for two or more vectors at a time (loops unrolled into registers, by hand or not).
    """
    syntax, code = facts.get("syntax"), facts.get("object")
    if not syntax or not code:
        return None
    most = max(code["depth"] - 1, 0)
    plain = min(syntax["tiles"], most)
    if syntax["register_block"]:
        return int(min(max(min(syntax["levels"] - 1, most) + 1, plain), 3))
    unrolled = code["vectors_per_trip"] >= 2 or code["accumulators"] >= 4
    return int(min(plain + unrolled, 3))


def memory(facts: Facts) -> int | None:
    """0 scalar or strided, 1 contiguous vectors, 2 staged or prefetched, 3 streaming stores."""
    trace, code = facts.get("trace"), facts.get("object")
    if not trace or not code or not _seen(trace):
        return None
    tensors = [*trace["tensors"].values()]
    written = sum(t["write_bytes"] for t in tensors)
    streamed = sum(t["stream_bytes"] for t in tensors)
    if code["stream_in_loops"] and streamed >= 0.25 * max(written, 1):
        return 3
    largest = _largest(trace)
    read_lines = sum(t["lines"] for t in tensors if t["read_bytes"])
    if code["prefetch_in_loops"] and trace["prefetched_lines"] >= read_lines / 16:
        return 2
    scratch = trace["scratch"]
    if scratch["staged_bytes"] >= 0.5 * largest and scratch["staged_lines"] * 64 > _REGISTER_FILE:
        return 2
    moved = code["bytes"]
    vectors = moved["contiguous"] + moved["stream"]
    total = vectors + moved["scalar"] + moved["gather"]
    return int(vectors >= 0.5 * total and total > 0)


def fusion(facts: Facts) -> int | None:
    """0 every intermediate stored, 1 some, 2 none but tensors are fetched again, 3 all fetched once."""
    trace, unfused = facts.get("trace"), facts.get("unfused")
    if not trace or not _seen(trace):
        return None
    stored = _intermediates(trace)
    if stored:
        return None if unfused is None else 0 if stored >= unfused else 1
    tensors = trace["tensors"].values()
    misses = sum(t["read_misses"] + t["write_misses"] for t in tensors)
    return 3 if misses <= _REREAD * sum(t["lines"] for t in tensors) else 2


def _seen(trace: Facts) -> bool:
    """Whether the trace saw the results being written: what it cannot see, it cannot tell from nothing."""
    return all(
        tensor["write_bytes"] + tensor["gather_bytes"] >= _SEEN * int(tensor["elements"]) * int(tensor["itemsize"])
        for name, tensor in trace["tensors"].items()
        if name.startswith("out")
    )


def _largest(trace: Facts) -> int:
    """Bytes of the largest tensor that the kernel touched."""
    return max((int(t["lines"]) * 64 for t in trace["tensors"].values()), default=64)


def _intermediates(trace: Facts) -> int:
    """Tensor-sized intermediates that went to memory, in units of the largest output or input.

    Outputs give the unit unless they are small beside the inputs (a reduction's). An element of an
    intermediate is taken to have at least four bytes, since kernels compute halves in float.
    """
    outputs, largest = 1, 1
    for name, tensor in trace["tensors"].items():
        nbytes = int(tensor["elements"]) * max(4, int(tensor["itemsize"]))
        largest = max(largest, nbytes)
        outputs = max(outputs, nbytes if name.startswith("out") else 1)
    unit = outputs if outputs * 8 >= largest else largest
    stored = int(trace["scratch"]["written_back_lines"]) * 64 / unit
    return max(round(stored), int(stored >= _TENSOR_SHARE))


@dataclass(frozen=True)
class Axis:
    """One axis: its levels' names (their number is the axis' size) and how facts become a level."""

    name: str
    levels: tuple[str, ...]
    measure: Callable[[Facts], int | None]


AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("tiling", ("none", "one level", "two levels", "three or more"), tiling),
        Axis("memory", ("scalar or strided", "contiguous vector", "staged or prefetched", "streaming"), memory),
        Axis("fusion", ("all materialised", "some materialised", "none, inputs read again", "none, read once"), fusion),
    )
}
"""Every axis by name; a new one is one more entry."""


class Descriptor:
    """Turns facts into measures, measures into a cell.

    Raises:
        UsageError: an axis that does not exist, or none.
    """

    name = "default"

    def __init__(self, axes: Sequence[str] = tuple(AXES), *, version: int = VERSION) -> None:
        unknown = [axis for axis in axes if axis not in AXES]
        if unknown or not axes or len(set(axes)) != len(axes):
            raise UsageError(
                f"expected distinct axes out of {', '.join(AXES)}, got {', '.join(axes) or 'none'}; mend archive.axes"
            )
        if version != VERSION:
            raise UsageError(
                f"expected a descriptor of version {VERSION}, got version {version}; use the evoforge that made it"
            )
        self.version = version
        self.axes = tuple(axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels per axis."""
        return tuple(len(AXES[axis].levels) for axis in self.axes)

    def measure(self, facts: Facts) -> dict[str, int | None]:
        """Axis → level; None: unresolved."""
        return {axis: AXES[axis].measure(facts) for axis in self.axes}

    def cell(self, facts: Facts) -> Cell | None:
        """The cell, or None if any axis is unresolved."""
        levels = [level for level in self.measure(facts).values() if level is not None]
        return tuple(levels) if len(levels) == len(self.axes) else None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "axes": list(self.axes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Descriptor:
        return cls(data["axes"], version=data["version"])
