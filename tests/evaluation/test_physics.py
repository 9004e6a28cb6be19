"""The lower bound, against arithmetic done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evoforge.core import Signature, Target, TensorSpec
from evoforge.evaluation.physics import bound_ms

MIB = 1 << 20
CEILINGS = {
    "read/l2": 400e9, "copy/l2": 400e9, "stream/l2": 200e9,
    "read/l3": 100e9, "copy/l3": 100e9, "stream/l3": 100e9,
    "read/dram": 30e9, "copy/dram": 20e9, "stream/dram": 40e9, "2:1/dram": 35e9, "write/dram": 25e9,
    "flops/f32": 100e9, "flops/f64": 50e9,
}  # fmt: skip


def target(l3: int = 0, ceilings: dict[str, float] = CEILINGS) -> Target:
    fingerprint = {"l2_bytes": MIB, "l2_total_bytes": 2 * MIB, "l3_bytes": l3}
    return Target("cpu", "cpu", 2, "native", fingerprint, ceilings)


def tensor(name: str, nbytes: int) -> TensorSpec:
    return TensorSpec(name, (nbytes // 4,), (1,), "f32")


def signature(inputs: int, outputs: int, constants: int = 0) -> Signature:
    return Signature((tensor("in0", inputs),), (tensor("cst0", constants),), (tensor("out0", outputs),))


def test_without_ceilings_there_is_no_bound() -> None:
    assert bound_ms(signature(4, 4), {"f32": 1e12}, target(ceilings={})) is None


def test_a_large_copy_runs_at_the_better_kind_of_copy() -> None:
    work = signature(1000 * MIB, 1000 * MIB)
    # Caches hold 2 MiB of what a turn touches; that much of the outputs need not travel every second call.
    missed = 2000 * MIB - 2 * MIB / 2
    assert bound_ms(work, {}, target()) == pytest.approx(missed / 40e9 * 1e3)


def test_reading_is_bounded_by_the_rates_on_either_side() -> None:
    # Almost all reads: between read (30) and 2:1 (35), never the copy's 40.
    work = signature(1000 * MIB, MIB)
    bound = bound_ms(work, {}, target())
    assert bound == pytest.approx(1000 * MIB / 35e9 * 1e3, rel=0.01)
    pure = signature(1000 * MIB, 0)
    assert bound_ms(pure, {}, target()) == pytest.approx(999 * MIB / 30e9 * 1e3, rel=0.01)


def test_what_stays_in_the_last_level_runs_at_its_rate() -> None:
    work = signature(4 * MIB, 4 * MIB)  # ring of 4 sets and two outputs: 24 MiB
    near = bound_ms(work, {}, target(l3=64 * MIB))
    # The private caches hold 2 MiB of the two output buffers.
    assert near == pytest.approx((8 * MIB - MIB) / 100e9 * 1e3)
    far = bound_ms(work, {}, target(l3=0))
    assert far == pytest.approx((8 * MIB - MIB) / 40e9 * 1e3)


def test_constants_stay_where_they_fit() -> None:
    light, heavy = signature(1000 * MIB, 4, MIB), signature(1000 * MIB, 4, 500 * MIB)
    plain = bound_ms(signature(1000 * MIB, 4), {}, target()) or 0
    assert bound_ms(light, {}, target()) == pytest.approx(plain, rel=2e-3)
    assert (bound_ms(heavy, {}, target()) or 0) > 1.4 * plain


def test_arithmetic_counts_where_it_takes_longer() -> None:
    work = signature(4096, 4096)
    assert bound_ms(work, {"f32": 1e9}, target()) == pytest.approx(10.0)
    assert bound_ms(work, {"f32": 1e9, "f64": 1e9}, target()) == pytest.approx(30.0)
    # Sixteen-bit work may run on matrix units; integers are free.
    assert bound_ms(work, {"bf16": 16e9, "i64": 1e15}, target()) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("dtypes", "precision", "products"),
    [
        (("f32", "f32"), "ieee", 6), (("f32", "f32"), "split", 3), (("f32", "f32"), "tf32", 1),
        (("f32", "i8"), "ieee", 3), (("f32", "bf16"), "split", 3), (("bf16", "bf16"), "ieee", 1),
    ],
)  # fmt: skip
def test_a_matrix_unit_makes_a_product_of_floats_of_several(
    dtypes: tuple[str, str], precision: str, products: int
) -> None:
    specs = tuple(TensorSpec(f"in{i}", (64,), (1,), dtype) for i, dtype in enumerate(dtypes))
    work = Signature(specs, (), (tensor("out0", 256),))
    plain = target()
    unit = replace(plain, fingerprint={**plain.fingerprint, "matrix": "amx_bf16"})
    assert bound_ms(work, {"f32": 1e9}, plain, precision) == pytest.approx(10.0)
    assert bound_ms(work, {"f32": 1e9}, unit, precision) == pytest.approx(10.0 * products / 16)


def test_holes_between_strided_elements_are_not_traffic() -> None:
    sparse = Signature((TensorSpec("in0", (250 * MIB,), (2,), "f32"),), (), (tensor("out0", 4),))
    dense = signature(1000 * MIB, 4)
    assert bound_ms(sparse, {}, target()) == pytest.approx(bound_ms(dense, {}, target()), rel=2e-3)
