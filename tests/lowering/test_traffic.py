"""Loops by hand: what they fetch, and how often."""

from __future__ import annotations

from evoforge.lowering.linear import Scope
from evoforge.lowering.tiles import levels, vectors_per_trip
from evoforge.lowering.traffic import Flow, traffic
from evoforge.lowering.walked import Place, Walk, walk

CACHE = 1 << 20


def walked(text: str, **places: int) -> Walk:
    """`places`: bytes of tensors, or of scratch if the name begins with s."""
    found = {name: Place(name, 4, nbytes, name[0] == "s") for name, nbytes in places.items()}
    return walk(text.splitlines(), Scope({}, {"TILE": 64, "ONCE": 1 << 20}, 16), found, [])


def flows(text: str, **places: int) -> dict[str, Flow]:
    return {flow.place.name: flow for flow in traffic(walked(text, **places), CACHE, 16)}


def row_twice(cols: int) -> str:
    return f"""
for (int64_t row = 0; row < 8; ++row) {{
    for (int64_t col = 0; col < {cols}; col += evo::lanes)
        acc.push(evo::load(in0 + row * {cols} + col, n));
    for (int64_t col = 0; col < {cols}; col += evo::lanes)
        evo::store(out0 + row * {cols} + col, evo::load(in0 + row * {cols} + col, n), n);
}}"""


def test_a_row_is_fetched_again_once_it_outgrows_the_cache() -> None:
    for cols, times in ((1 << 14, 1), (1 << 20, 2)):
        found = flows(row_twice(cols), in0=32 * cols, out0=32 * cols)["in0"]
        assert abs(found.fetched - times * 32 * cols) < 0.01 * 32 * cols
        assert found.touched == 32 * cols


def test_what_every_row_reads_stays_if_it_fits() -> None:
    text = """
for (int64_t row = 0; row < 64; ++row)
    for (int64_t col = 0; col < 4096; col += evo::lanes) {
        evo::store(out0 + row * 4096 + col, evo::load(cst0 + col, n), n);
    }"""
    found = flows(text, cst0=4 * 4096, out0=64 * 4 * 4096)
    assert abs(found["cst0"].fetched - 4 * 4096) < 64
    assert found["out0"].fetched == 64 * 4 * 4096


def test_ragged_blocks_touch_no_more_than_there_is() -> None:
    text = """
for (int64_t row = 0; row < 64; ++row)
    for (int64_t col = 0; col < 56; col += evo::lanes) {
        evo::store(out0 + row * 56 + col, x, n);
    }"""
    assert flows(text, out0=1 << 30)["out0"].touched == 64 * 56 * 4


def test_scratch_that_is_written_for_every_row_is_staged() -> None:
    text = """
for (int64_t row = 0; row < 64; ++row) {
    for (int64_t col = 0; col < 4096; col += evo::lanes)
        evo::store(s + col, evo::load(in0 + row * 4096 + col, n), n);
    for (int64_t col = 0; col < 4096; col += evo::lanes)
        evo::store(out0 + row * 4096 + col, evo::load(s + col, n), n);
}"""
    size = 64 * 4096 * 4
    found = flows(text, in0=size, out0=size, s=4 * 4096)
    assert found["s"].staged > size and found["s"].dirtied < 0.1 * size
    whole = flows(text.replace("s + col", "s + row * 4096 + col"), in0=size, out0=size, s=size)
    assert whole["s"].staged == 0 and whole["s"].dirtied >= size


def test_tiles_are_loops_within_a_step_that_both_trip_more_than_once() -> None:
    text = """
for (int64_t tile = 0; tile < 1024; tile += TILE)
    for (int64_t col = tile; col < evo::min(tile + TILE, 1024); ++col) {
        out0[col] = in0[col];
    }"""
    assert levels(walked(text, in0=4096, out0=4096), frozenset(), 16).tiles == 1
    assert levels(walked(text.replace("TILE", "ONCE"), in0=4096, out0=4096), frozenset(), 16).tiles == 0


def test_a_short_row_of_vectors_is_unrolled_by_the_compiler() -> None:
    text = """
for (int64_t row = 0; row < 1024; ++row)
    for (int64_t col = 0; col < 64; col += evo::lanes) {
        evo::store(out0 + row * 64 + col, evo::load(in0 + row * 64 + col, n), n);
    }"""
    (row,) = walked(text, in0=1 << 18, out0=1 << 18).inner
    assert vectors_per_trip(row, 16) == 4
    (row,) = walked(text.replace(" 64", " 1600"), in0=1 << 24, out0=1 << 24).inner
    assert vectors_per_trip(row, 16) == 1
