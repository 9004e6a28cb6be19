from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoforge.core import TensorSpec, Tolerance
from evoforge.evaluation.check import (
    Check,
    Samples,
    check_outputs,
    damaged_slack,
    poison,
    poison_slack,
)
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.worker import Reference

U = 2.0**-24


def dense(name: str, shape: tuple[int, ...], dtype: str) -> TensorSpec:
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= size
    return TensorSpec(name, shape, tuple(reversed(stride)), dtype)


def reference_of(y64: npt.NDArray[Any], d: npt.NDArray[Any] | None = None, ref_error: float = 0.0) -> Reference:
    whole = y64.dtype.kind == "i"
    answers = SharedTensors([dense("out0", y64.shape, "i64" if whole else "f64")])
    answers.array(0)[...] = y64
    scales = SharedTensors([] if whole else [dense("out0", y64.shape, "f32")])
    if not whole:
        scales.array(0)[...] = U * np.abs(y64) if d is None else d
    return Reference(answers, scales, (ref_error,))


def checked(y: npt.NDArray[Any], reference: Reference, dtype: str = "f32", tolerance: Tolerance | None = None) -> Check:
    outputs = SharedTensors([dense("out0", y.shape, dtype)])
    outputs.array(0)[...] = y
    return check_outputs(outputs, reference, tolerance or Tolerance())


def bf16(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Truncated: at most one unit in the last place off."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_the_rounded_reference_passes() -> None:
    y64 = np.random.default_rng(0).standard_normal((100, 50))
    for dtype, y in (
        ("f32", y64.astype(np.float32)),
        ("f64", y64),
        ("f16", y64.astype(np.float16)),
        ("bf16", bf16(y64)),
    ):
        found = checked(y, reference_of(y64), dtype)
        assert found.passed, (dtype, found.reason)


def test_the_tolerance_is_512_times_d() -> None:
    y64 = np.ones(1000)
    for times, passed in ((500.0, True), (520.0, False)):
        y = y64.copy()
        y[:] = 1 + times * U
        found = checked(y, reference_of(y64), "f64")
        assert found.passed is passed
        assert found.max_error == pytest.approx(times * U)
    assert not checked(y64 + 300 * U, reference_of(y64), "f64", Tolerance(factor=256)).passed


def test_one_in_a_thousand_may_be_off_up_to_16_times_the_reference_error() -> None:
    y64 = np.ones(10_000)

    def off(count: int, by: float, ref_error: float) -> bool:
        y = y64.copy()
        y[:count] += by
        return checked(y, reference_of(y64, ref_error=ref_error), "f64").passed

    assert off(10, 1e-4, ref_error=1e-5)
    assert not off(11, 1e-4, ref_error=1e-5)
    assert not off(1, 1e-4, ref_error=5e-6)
    assert not off(1, 1e-4, ref_error=0.0)


def test_zeros_and_half_of_the_data_fail() -> None:
    y64 = np.random.default_rng(1).standard_normal((64, 64))
    y = y64.astype(np.float32)
    assert not checked(np.zeros_like(y), reference_of(y64)).passed
    half = y.copy()
    half[32:] = 0
    found = checked(half, reference_of(y64))
    assert not found.passed
    assert "50%" in found.reason
    assert "out0[" in found.reason


def test_the_worst_element_is_named() -> None:
    y64 = np.zeros((30, 400)) + 1.0
    y = y64.astype(np.float32)
    y[21, 377] = 3.5
    assert "out0[21, 377] is 3.5, expected 1.0" in checked(y, reference_of(y64)).reason


def test_an_element_within_its_tolerance_is_not_named_however_large_its_error() -> None:
    y64 = np.ones((3, 4000))
    y64[0, 7], y64[1, 5] = 1e9, 1e-6
    y = y64.astype(np.float32)
    y[0, 7], y[1, 5] = 1e9 + 128, 2e-6
    assert (
        "out0[1, 5] is 2e-06, expected 1e-06"
        in checked(y, reference_of(y64, (U * np.abs(y64)).astype(np.float32))).reason
    )


def test_non_finite_values_must_stand_where_the_reference_has_them() -> None:
    y64 = np.array([1.0, np.nan, np.inf, -np.inf, 0.0])
    y = y64.astype(np.float32)
    assert checked(y, reference_of(y64)).passed
    assert not checked(y, reference_of(y64), tolerance=Tolerance(nonfinite="forbid")).passed
    for index, value in ((0, np.nan), (0, np.inf), (1, 1.0), (2, -np.inf), (3, np.inf), (2, 1e30), (4, np.nan)):
        wrong = y.copy()
        wrong[index] = value
        assert not checked(wrong, reference_of(y64, ref_error=1e38)).passed, (index, value)


def test_beyond_the_types_range_infinity_is_right() -> None:
    y64 = np.array([1e39, -1e39, 1.0])
    assert checked(np.array([np.inf, -np.inf, 1.0], np.float32), reference_of(y64)).passed
    assert not checked(np.array([np.inf, np.inf, 1.0], np.float32), reference_of(y64)).passed
    y16 = np.array([70000.0, 1.0])
    assert checked(np.array([np.inf, 1.0], np.float16), reference_of(y16), "f16").passed


@pytest.mark.parametrize(
    ("exact", "got", "right"),
    [
        (65519.0, np.inf, True), (-65519.0, -np.inf, True), (65519.0, -np.inf, False), (65521.0, 65504.0, True),
        (65800.0, 65504.0, False), (65400.0, np.inf, False), (65519.0, np.nan, False),
    ],
)  # fmt: skip
def test_at_the_edge_of_the_types_range_either_side_is_right(exact: float, got: float, right: bool) -> None:
    reference = reference_of(np.array([exact, 1.0]), np.array([0.05, 1e-9]))
    assert checked(np.array([got, 1.0], np.float16), reference, "f16").passed == right


def test_infinities_that_are_right_do_not_make_a_slice_wrong() -> None:
    y64 = np.full((128, 128), 7e4)
    y64[:, 1:] = 1.0
    y = np.where(y64 > 65504, np.inf, y64).astype(np.float16)
    y[5, 7] = 1 + 2.0**-9  # one of many may be a little off
    assert checked(y, reference_of(y64, ref_error=0.01), "f16").passed


def test_sixteen_bit_outputs_get_one_unit_in_the_last_place() -> None:
    y64 = np.full(2000, 1.0)
    assert checked(np.full(2000, 1 + 2.0**-10, np.float16), reference_of(y64), "f16").passed
    assert not checked(np.full(2000, 1 + 2.0**-9, np.float16), reference_of(y64), "f16").passed
    assert checked(bf16(np.full(2000, 1 + 2.0**-7)), reference_of(y64), "bf16").passed
    assert not checked(bf16(np.full(2000, 1 + 2.0**-6)), reference_of(y64), "bf16").passed


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "i64", "bool"])
def test_integers_are_exact(dtype: str) -> None:
    y64 = np.arange(5000).astype(np.int64) % 2
    assert checked(y64, reference_of(y64), dtype).passed
    y = y64.copy()
    y[4321] ^= 1
    found = checked(y, reference_of(y64), dtype)
    assert not found.passed
    assert "out0[4321]" in found.reason


def test_strides_are_followed() -> None:
    spec = TensorSpec("out0", (40, 30), (1, 40), "f32")
    y64 = np.random.default_rng(2).standard_normal((40, 30))
    outputs = SharedTensors([spec])
    outputs.array(0)[...] = y64
    assert check_outputs(outputs, reference_of(y64), Tolerance()).passed
    outputs.array(0)[...] = y64.T.reshape(40, 30)
    assert not check_outputs(outputs, reference_of(y64), Tolerance()).passed


def test_several_outputs_find_their_own_references() -> None:
    specs = [dense("out0", (3,), "i64"), dense("out1", (4,), "f32"), dense("out2", (5,), "f32")]
    y64 = SharedTensors([dense("out0", (3,), "i64"), dense("out1", (4,), "f64"), dense("out2", (5,), "f64")])
    d = SharedTensors([dense("out1", (4,), "f32"), dense("out2", (5,), "f32")])
    outputs = SharedTensors(specs)
    for index in range(3):
        outputs.array(index)[...] = index + 1
        y64.array(index)[...] = index + 1
    for array in d.arrays():
        array[...] = U
    reference = Reference(y64, d, (0.0, 0.0, 0.0))
    assert check_outputs(outputs, reference, Tolerance()).passed
    outputs.array(2)[4] = 2.5
    assert "out2[4]" in check_outputs(outputs, reference, Tolerance()).reason


def test_an_index_that_serves_as_well_is_right_and_any_other_wrong() -> None:
    answers, written = (SharedTensors([dense("out0", (6,), "i64")]) for _ in range(2))
    also = SharedTensors([dense("also", (2, 3), "i64")])
    answers.array(0)[...] = [4, 0, 3, 2, 2, 1]
    also.array(0)[...] = [(0, 2, 5), (0, 4, 0)]
    reference = Reference(answers, SharedTensors([]), (0.0,), also)
    outputs = written.array(0)
    outputs[...] = [4, 0, 5, 2, 0, 1]
    found = check_outputs(written, reference, Tolerance(), earlier=written)
    assert found.passed and found.same
    assert not check_outputs(written, reference, Tolerance(), earlier=answers).same
    assert not check_outputs(written, reference_of(answers.array(0)), Tolerance()).passed
    outputs[2] = 4
    found = check_outputs(written, reference, Tolerance())
    assert not found.passed and "out0[2] is 4, expected 3" in found.reason
    outputs[...] = [5, 0, 3, 2, 2, 1]  # what serves for one element is wrong for another
    assert not check_outputs(written, reference, Tolerance()).passed


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9000), st.integers(0, 2**32), st.sampled_from(["f32", "f64", "f16"]), st.floats(0, 1e-3))
def test_the_native_pass_agrees_with_numpy(size: int, seed: int, dtype: str, ref_error: float) -> None:
    rng = np.random.default_rng(seed)
    y64 = rng.standard_normal(size) * 10.0 ** rng.uniform(-4, 3, size)
    kind = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[dtype]
    y = (y64 * (1 + rng.choice([0, 0, 0, 400, 600, 5000], size) * U)).astype(kind)
    d = (U * np.abs(y64)).astype(np.float32)
    error = np.abs(y.astype(np.float64) - y64)
    limit = 512.0 * d.astype(np.float64) + (2.0**-1022 if dtype == "f64" else 2.0**-126)
    if dtype == "f16":
        limit += 2.0 ** (np.maximum(np.floor(np.log2(np.abs(y64))), -14) - 10)
    beyond = int((error > limit).sum())
    hard = int((error > np.maximum(limit, 16 * ref_error)).sum())
    found = checked(y, reference_of(y64, d, ref_error), dtype)
    assert found.passed == (hard == 0 and beyond <= size // (10_000 if dtype == "f16" else 1000))
    assert found.max_error == error.max()


@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_bits_are_compared_on_the_way(dtype: str) -> None:
    y64 = np.arange(1 << 21) % 100
    reference = reference_of(y64 if dtype == "i32" else y64.astype(np.float64))
    first, second = (SharedTensors([dense("out0", y64.shape, dtype)]) for _ in range(2))
    for outputs in (first, second):
        outputs.array(0)[...] = y64
    assert check_outputs(first, reference, Tolerance(), earlier=second).same
    second.array(0)[(1 << 20) + 5] = 77
    assert not check_outputs(first, reference, Tolerance(), earlier=second).same
    # Large outputs are judged in parts: the place is still that of the whole.
    assert f"out0[{(1 << 20) + 5}]" in check_outputs(second, reference, Tolerance()).reason


def test_poison_left_over_is_named_as_unwritten() -> None:
    y64 = np.ones((50, 3))
    for variant in (0, 1):
        outputs = SharedTensors([dense("out0", (50, 3), "f32")])
        poison(outputs, variant)
        outputs.array(0)[:40] = 1
        found = check_outputs(outputs, reference_of(y64), Tolerance())
        assert not found.passed
        assert "out0[40, 0] was never written" in found.reason


@pytest.mark.parametrize(("dtype", "wide"), [("f32", 2048), ("f64", 2048), ("f16", 16384), ("bf16", 16384)])
@pytest.mark.parametrize("along", [0, 1])
def test_small_numbers_beside_large_ones_are_judged(dtype: str, wide: int, along: int) -> None:
    """The largest error of the fp32 reference is that of the large ones: a column of others would vanish in it."""
    rng = np.random.default_rng(0)
    y64 = 1e4 * rng.standard_normal((256, wide))
    y64[:, 7] = rng.uniform(0.1, 0.9, 256)
    wrong = y64.copy()
    wrong[:, 7] = 0.5
    scattered = y64.copy()
    scattered[:20, 7] = 0.5
    if along == 0:
        y64, wrong, scattered = y64.T.copy(), wrong.T.copy(), scattered.T.copy()
    reference = reference_of(y64, ref_error=100.0)
    if dtype == "bf16":
        wrong, scattered = bf16(wrong), bf16(scattered)
    place = "7, :" if along == 0 else ":, 7"
    found = checked(wrong, reference, dtype)
    assert not found.passed and f"of the 256 elements of out0[{place}] are out of tolerance" in found.reason
    assert checked(scattered, reference, dtype).passed


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_what_should_be_nan_has_to_be_written(dtype: str) -> None:
    y64 = np.ones((50, 3))
    y64[7] = math.nan
    outputs = SharedTensors([dense("out0", (50, 3), dtype)])
    one = 0x3F80 if dtype == "bf16" else 1
    passed = []
    for variant in (0, 1):
        poison(outputs, variant)
        outputs.array(0)[:7] = outputs.array(0)[8:] = one
        passed.append(check_outputs(outputs, reference_of(y64), Tolerance()).passed)
    assert passed == [True, False], "NaN that stands there already is not told from NaN that was written"
    samples = Samples(outputs, np.random.default_rng(0))
    outputs.array(0)[:7] = outputs.array(0)[8:] = one
    assert not samples.check(reference_of(y64), Tolerance()).passed


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "i64", "bool"])
def test_two_poisons_never_agree(dtype: str) -> None:
    is_float = dtype in ("f32", "f64", "f16", "bf16")
    first, second = (SharedTensors([dense("out0", (3, 5), dtype)]) for _ in range(2))
    poison(first, 0)
    poison(second, 1)
    assert not (first.array(0).view("u1") == second.array(0).view("u1")).all()
    for outputs in (first, second):
        outputs.array(0)[...] = 1
    reference = reference_of(np.ones((3, 5)) if is_float else np.ones((3, 5), np.int64))
    assert check_outputs(first, reference, Tolerance(), earlier=second).same  # canaries differ, values do not


def test_touched_slack_is_found() -> None:
    specs = [dense("out0", (37, 61), "f32"), dense("out1", (1,), "i8")]
    for variant in (0, 1):
        outputs = SharedTensors(specs)
        poison(outputs, variant)
        for array in outputs.arrays():
            array[...] = 0
        assert damaged_slack(outputs, variant) is None
        for index in range(2):
            segment = outputs.segments[index]
            begin = segment.data - segment.start
            for at, words in ((begin - 1, "before the start"), (begin + segment.nbytes, "past the end")):
                whole = outputs.bytes_of(index)
                kept, whole[at] = whole[at], whole[at] ^ 1
                assert damaged_slack(outputs, variant) == f"wrote {words} of out{index}"
                whole[at] = kept


def test_slack_around_inputs_differs_between_runs_and_values_stay() -> None:
    inputs = SharedTensors([dense("in0", (37, 61), "f32")])
    inputs.array(0)[...] = 7
    end = inputs.segments[0].data - inputs.segments[0].start + inputs.segments[0].nbytes
    poison_slack(inputs, 0)
    first = inputs.bytes_of(0)[end]
    poison_slack(inputs, 1)
    assert inputs.bytes_of(0)[end] != first
    assert (inputs.array(0) == 7).all()


@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize("shape", [(20,), (300, 100)])
def test_a_sample_sees_whether_the_batch_wrote(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    y64 = rng.integers(-100, 100, shape) if dtype == "i32" else rng.standard_normal(shape)
    reference = reference_of(y64)
    outputs = SharedTensors([dense("out0", shape, dtype)])
    outputs.array(0)[...] = y64
    stale = Samples(outputs, rng)
    assert not stale.check(reference, Tolerance()).passed
    fresh = Samples(outputs, rng)
    outputs.array(0)[...] = y64
    assert fresh.check(reference, Tolerance()).passed
    half = Samples(outputs, rng)
    outputs.array(0)[: shape[0] // 2] = y64[: shape[0] // 2]
    assert "timed batch" in half.check(reference, Tolerance()).reason


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
def test_who_mends_what_is_poisoned_and_no_more_is_met(dtype: str) -> None:
    rng = np.random.default_rng(3)
    earlier, later = (rng.integers(-100, 100, (300, 100)) for _ in range(2))
    answers = bf16(later) if dtype == "bf16" else later
    outputs = SharedTensors([dense("out0", later.shape, dtype)])
    array = outputs.array(0)
    array[...] = bf16(earlier) if dtype == "bf16" else earlier
    before = array.copy()
    sample = Samples(outputs, rng)
    found = array != before
    assert 3000 < found.sum() < 4097
    array[found] = answers[found]
    reference = reference_of(later if dtype == "i32" else later.astype(np.float64))
    assert "timed batch" in sample.check(reference, Tolerance()).reason
    sample = Samples(outputs, rng)
    array[...] = answers
    assert sample.check(reference, Tolerance()).passed


def test_a_sampled_element_is_named_by_its_place_in_the_output() -> None:
    y64 = np.arange(30_000.0).reshape(3, 100, 100)
    outputs = SharedTensors([dense("out0", y64.shape, "f32")])
    sample = Samples(outputs, np.random.default_rng(3))
    outputs.array(0)[...] = y64 + 1e6
    reason = sample.check(reference_of(y64), Tolerance()).reason
    found = re.search(r"out0\[(\d), (\d+), (\d+)\] is .*, expected (\S+);", reason)
    assert found is not None
    i, j, k = (int(found[at]) for at in (1, 2, 3))
    assert str(y64[i, j, k]) in found[4]


def test_a_sample_is_granted_what_chance_gives() -> None:
    """As many elements are out of tolerance, though not by much, as a whole output may have: no sample refuses it."""
    rng = np.random.default_rng(3)
    y64 = rng.standard_normal((300, 100))
    reference = reference_of(y64, ref_error=1.0)
    outputs = SharedTensors([dense("out0", y64.shape, "f32")])

    def refused(share: float) -> int:
        off = rng.permutation(y64.size) < share * y64.size
        samples = [Samples(outputs, rng) for _ in range(300)]
        outputs.array(0)[...] = y64 + 0.1 * off.reshape(y64.shape)
        return sum(not sample.check(reference, Tolerance()).passed for sample in samples)

    assert refused(0.0009) == 0
    assert refused(0.02) == 300
