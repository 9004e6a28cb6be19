from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from evoforge.archives.descriptor import AXES, Descriptor
from evoforge.errors import UsageError

MIB = 1 << 20


def tensor(lines: int, **counts: int) -> dict[str, int]:
    names = ("read_bytes", "write_bytes", "stream_bytes", "gather_bytes", "read_misses", "write_misses")
    size = {"elements": lines * 16, "itemsize": 4, "bytes": lines * 64, "lines": lines}
    return {**size, **dict.fromkeys(names, 0), **counts}


LINES = 4 * MIB // 64
PLAIN: dict[str, Any] = {
    "object": {
        "bytes": {"contiguous": 640, "scalar": 40, "gather": 0, "stream": 0},
        "stream_in_loops": 0, "prefetch_in_loops": 0, "depth": 3, "vectors_per_trip": 1, "accumulators": 1,
    },
    "syntax": {"tiles": 0, "levels": 0, "register_block": False, "nest": 3},
    "trace": {
        "tensors": {
            "in0": tensor(LINES, read_bytes=4 * MIB, read_misses=LINES),
            "out0": tensor(LINES, write_bytes=4 * MIB, write_misses=LINES),
        },
        "scratch": {"written_back_lines": 0, "staged_bytes": 0, "staged_lines": 0},
        "prefetches": 0, "prefetched_lines": 0,
    },
    "unfused": 2,
}  # fmt: skip


def changed(**values: Any) -> dict[str, Any]:
    """PLAIN with values replaced by path: ``object__depth=1``."""
    facts = copy.deepcopy(PLAIN)
    for path, value in values.items():
        *above, last = path.split("__")
        place = facts
        for step in above:
            place = place[step]
        place[last] = value
    return facts


def level(axis: str, **values: Any) -> int | None:
    return Descriptor([axis]).measure(changed(**values))[axis]


def test_a_plain_kernel() -> None:
    assert Descriptor().measure(PLAIN) == {"tiling": 0, "memory": 1, "fusion": 3}
    assert Descriptor().cell(PLAIN) == (0, 1, 3)


@pytest.mark.parametrize(
    ("tiles", "levels", "block", "depth", "vectors", "accumulators", "expected"),
    [
        (1, 1, False, 3, 1, 1, 1),
        (1, 2, True, 3, 4, 4, 2),  # the block in the text and the one in the object are the same
        (0, 0, False, 2, 2, 1, 1),  # unrolled by hand
        (0, 0, False, 2, 1, 4, 1),
        (0, 0, False, 2, 1, 3, 0),  # three different sums are no block
        (5, 5, False, 9, 1, 1, 3),
        (2, 2, False, 2, 1, 1, 1),  # the compiler has left only two loops
        (0, 1, True, 1, 1, 1, 1),
    ],
)
def test_tiling(
    tiles: int, levels: int, block: bool, depth: int, vectors: int, accumulators: int, expected: int
) -> None:
    syntax = {"tiles": tiles, "levels": levels, "register_block": block, "nest": 3}
    found = level(
        "tiling",
        syntax=syntax,
        object__depth=depth,
        object__vectors_per_trip=vectors,
        object__accumulators=accumulators,
    )
    assert found == expected


def test_memory_is_scalar_when_less_than_half_of_the_bytes_move_in_vectors() -> None:
    assert level("memory", object__bytes={"contiguous": 40, "scalar": 41, "gather": 0, "stream": 0}) == 0
    assert level("memory", object__bytes={"contiguous": 40, "scalar": 0, "gather": 41, "stream": 0}) == 0
    assert level("memory", object__bytes={"contiguous": 40, "scalar": 40, "gather": 0, "stream": 0}) == 1


def test_memory_is_staged_by_a_recycled_buffer_or_by_prefetch() -> None:
    assert level("memory", trace__scratch__staged_bytes=2 * MIB, trace__scratch__staged_lines=256) == 2
    assert level("memory", trace__scratch__staged_bytes=MIB, trace__scratch__staged_lines=256) == 1
    assert (
        level("memory", trace__scratch__staged_bytes=8 * MIB, trace__scratch__staged_lines=8) == 1
    )  # spilled registers
    assert level("memory", object__prefetch_in_loops=1, trace__prefetched_lines=LINES) == 2
    assert level("memory", object__prefetch_in_loops=1, trace__prefetched_lines=3) == 1
    assert level("memory", object__prefetch_in_loops=0, trace__prefetched_lines=LINES) == 1


def test_memory_is_streaming_when_the_object_streams_in_loops_and_the_run_did() -> None:
    assert level("memory", object__stream_in_loops=1, trace__tensors__out0__stream_bytes=4 * MIB) == 3
    assert level("memory", object__stream_in_loops=1) == 1
    assert level("memory", trace__tensors__out0__stream_bytes=4 * MIB) == 1


@pytest.mark.parametrize(
    ("stored", "unfused", "expected"),
    [
        (0.0, 2, 3), (0.1, 2, 3), (0.5, 2, 1), (1.0, 2, 1), (2.0, 2, 0), (2.2, 2, 0), (1.0, 1, 0),
        (1.0, 0, 0), (0.0, 0, 3), (0.0, None, 3), (1.0, None, None),
    ],
)  # fmt: skip
def test_fusion_counts_stored_intermediates(stored: float, unfused: int | None, expected: int | None) -> None:
    assert level("fusion", trace__scratch__written_back_lines=int(stored * LINES), unfused=unfused) == expected


def test_fusion_tells_tensors_that_are_fetched_again() -> None:
    assert level("fusion", trace__tensors__in0__read_misses=2 * LINES) == 2
    assert level("fusion", trace__tensors__out0__read_misses=LINES) == 2  # an output read back
    assert level("fusion", trace__tensors__in0__read_misses=int(1.1 * LINES)) == 3


def test_the_unit_of_an_intermediate_is_the_input_where_outputs_are_small() -> None:
    small = {"in0": PLAIN["trace"]["tensors"]["in0"], "out0": tensor(16, write_bytes=1024, write_misses=16)}
    assert level("fusion", trace__tensors=small, trace__scratch__written_back_lines=LINES, unfused=1) == 0
    assert level("fusion", trace__tensors=small, trace__scratch__written_back_lines=LINES // 10) == 3


def test_an_intermediate_of_halves_is_stored_in_floats() -> None:
    half = {**tensor(LINES, write_bytes=4 * MIB), "elements": LINES * 32, "itemsize": 2}
    assert level("fusion", trace__tensors={"out0": half}, trace__scratch__written_back_lines=2 * LINES, unfused=2) == 1


@pytest.mark.parametrize("witness", ["object", "syntax", "trace"])
def test_a_missing_witness_leaves_its_axes_unresolved(witness: str) -> None:
    needs = {"object": {"tiling", "memory"}, "syntax": {"tiling"}, "trace": {"memory", "fusion"}}
    measures = Descriptor().measure(changed(**{witness: None}))
    assert {axis for axis, value in measures.items() if value is None} == needs[witness]
    assert Descriptor().cell(changed(**{witness: None})) is None


def test_no_facts_at_all_are_no_cell() -> None:
    assert Descriptor().cell({}) is None
    assert Descriptor().cell({"error": "no objdump"}) is None


def test_axes_are_chosen_by_name_in_order() -> None:
    some = Descriptor(["fusion", "tiling"])
    assert some.cell(PLAIN) == (3, 0)
    assert some.shape == (4, 4)
    assert Descriptor().shape == tuple(len(axis.levels) for axis in AXES.values()) == (4, 4, 4)


def test_json_round_trip() -> None:
    some = Descriptor(["memory"])
    again = Descriptor.from_json(json.loads(json.dumps(some.to_json())))
    assert (again.axes, again.version, again.name) == (("memory",), some.version, "default")


@pytest.mark.parametrize("axes", [[], ["tiling", "tiling"], ["colour"]])
def test_axes_that_make_no_map_are_refused(axes: list[str]) -> None:
    with pytest.raises(UsageError, match="tiling, memory, fusion"):
        Descriptor(axes)


def test_a_descriptor_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match="version 1;"):
        Descriptor.from_json({"name": "default", "version": 1, "axes": ["tiling"]})


@pytest.mark.parametrize("axis", ["memory", "fusion"])
def test_a_result_that_nobody_saw_written_tells_nothing(axis: str) -> None:
    assert level(axis, trace__tensors__out0__write_bytes=0) is None
    assert level(axis, trace__tensors__out0__write_bytes=0, trace__tensors__out0__gather_bytes=4 * MIB) is not None
