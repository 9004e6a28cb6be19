import mmap
import os

import numpy as np
import pytest

from evoforge.core import TensorSpec
from evoforge.evaluation.shared import PAGE, SharedTensors, hidden

SPECS = [
    TensorSpec("in0", (3, 5), (5, 1), "f32"),
    TensorSpec("in1", (1025,), (1,), "f64"),
    TensorSpec("in2", (0,), (1,), "i8"),
]


def test_data_ends_right_before_the_segment_does() -> None:
    shared = SharedTensors(SPECS)
    for index, spec in enumerate(SPECS):
        segment = shared.segments[index]
        assert segment.start % PAGE == 0
        assert segment.data % 64 == 0
        assert 0 <= segment.start + segment.length - (segment.data + max(spec.nbytes, 1)) <= 63
        assert shared.address(index) % 64 == 0
    shared.close()


def test_two_mappings_see_the_same_tensor_and_one_may_only_read() -> None:
    shared = SharedTensors(SPECS)
    shared.array(0)[:] = np.arange(15, dtype=np.float32).reshape(3, 5)
    fd = shared.read_only_fd()
    other = SharedTensors.__new__(SharedTensors)
    with pytest.raises(PermissionError):
        other.__init__(SPECS, fd)  # type: ignore[misc]  # maps for writing, which this descriptor forbids
    with mmap.mmap(fd, shared.total_bytes, prot=mmap.PROT_READ) as view:
        found = np.frombuffer(view, np.float32, 15, shared.segments[0].data).copy()
    np.testing.assert_array_equal(found, np.arange(15))
    reading = SharedTensors(SPECS, fd, writable=False)
    shared.array(0)[0, 0] = 7  # whoever mapped it before still writes, and the other sees it
    assert reading.array(0)[0, 0] == 7
    with pytest.raises(ValueError, match="read-only"):
        reading.array(0)[0, 0] = 8
    with pytest.raises(PermissionError):  # nor does it help to open the memory again
        SharedTensors(SPECS, os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
    reading.close()
    shared.close()


def test_strides_are_kept() -> None:
    spec = TensorSpec("in0", (2, 3), (1, 2), "f32")
    shared = SharedTensors([spec])
    shared.array(0)[:] = [[1, 2, 3], [4, 5, 6]]
    flat = np.frombuffer(shared.bytes_of(0), np.float32)[-16:][:6]
    np.testing.assert_array_equal(flat, [1, 4, 2, 5, 3, 6])
    shared.close()


def test_what_is_hidden_is_seen_by_nobody_and_comes_back() -> None:
    shared = SharedTensors(SPECS)
    shared.array(0)[:] = 3
    shared.bytes_of(0)[-1] = 9  # the slack as well
    reading = SharedTensors(SPECS, shared.read_only_fd(), writable=False)
    with hidden([]):  # of a task without inputs
        assert reading.array(0).all()
    with pytest.raises(RuntimeError, match="the kernel failed"), hidden([shared]):
        assert not reading.array(0).any()
        raise RuntimeError("the kernel failed")
    assert (reading.array(0) == 3).all()
    assert reading.bytes_of(0)[-1] == 9
    reading.close()
    shared.close()
