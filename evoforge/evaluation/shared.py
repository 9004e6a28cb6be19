"""Tensors in anonymous shared memory (memfd), handed between processes as descriptors.

A `Block` of memory holds several tensors. Each tensor has a segment of whole pages, and its data
starts at ``segment end − roundup(nbytes, 64)``: 64-byte aligned, with at most 63 bytes of slack
before the end, behind which the runner maps a guard page. Nothing is on a file system, so nothing
is left behind when a process is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evoforge.core import TensorSpec

__all__ = ["PAGE", "Segment", "SharedTensors", "available_bytes", "exchanged", "hidden", "numpy_dtype", "rises"]

PAGE = 4096
_ALIGN = 64
_PIECE = 1 << 20
_F_SEAL_FUTURE_WRITE = 0x10  # linux/fcntl.h; Python names it from 3.13 on
_NUMPY = {
    "f32": "<f4", "f64": "<f8", "f16": "<f2", "bf16": "<u2", "i8": "i1", "u8": "u1",
    "i16": "<i2", "i32": "<i4", "i64": "<i8", "bool": "u1",
}  # fmt: skip


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy type that holds `dtype`; bfloat16 is held as its 16 bits."""
    return np.dtype(_NUMPY[dtype])


def available_bytes() -> int:
    """Free memory of the machine, or of the control group if that is less."""
    table = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(table["MemAvailable"].split()[0]) * 1024
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(free, 0)


def rises(values: Any) -> bool:
    """Whether every row of an array or a tensor is in order, as bounds to search among are: three numbers at least that
    are not all one, as scales of 1 are."""
    if not values.ndim or values.shape[-1] < 3:
        return False
    before, after = values[..., :-1], values[..., 1:]
    return bool((after >= before).all()) and bool((after > before).any())


@dataclass(frozen=True)
class Segment:
    """Where one tensor lies in a memfd, in bytes: segment start and length (pages), data start."""

    start: int
    length: int
    data: int
    nbytes: int


def _layout(sizes: Sequence[int]) -> tuple[list[Segment], int]:
    segments, offset = [], 0
    for nbytes in sizes:
        used = -(-max(nbytes, 1) // _ALIGN) * _ALIGN
        length = -(-used // PAGE) * PAGE
        segments.append(Segment(offset, length, offset + length - used, nbytes))
        offset += length
    return segments, max(offset, PAGE)


class SharedTensors:
    """A memfd with one segment per tensor, mapped into this process.

    The layout follows from the specs alone, so both sides compute it. `fd` is owned: `close`
    unmaps and closes it. `read_only_fd` opens the same memory without write permission; what comes
    through it is mapped with `writable` off, and a write to it is a segmentation fault.
    """

    def __init__(self, specs: Sequence[TensorSpec], fd: int | None = None, *, writable: bool = True) -> None:
        self.specs = tuple(specs)
        self.segments, self.total_bytes = _layout([spec.nbytes for spec in self.specs])
        if fd is None:
            fd = os.memfd_create("evoforge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, self.total_bytes)
        self.fd = fd
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._map = mmap.mmap(fd, self.total_bytes, prot=protection)

    def bytes_of(self, index: int) -> npt.NDArray[np.uint8]:
        """The whole segment of tensor `index`, slack included, as bytes (a live view)."""
        segment = self.segments[index]
        return np.frombuffer(self._map, np.uint8, segment.length, segment.start)

    def array(self, index: int) -> npt.NDArray[Any]:
        """Tensor `index` with its shape and strides (a live view)."""
        spec, segment = self.specs[index], self.segments[index]
        dtype = numpy_dtype(spec.dtype)
        flat = np.frombuffer(self._map, dtype, spec.nbytes // spec.itemsize, segment.data)
        steps = tuple(step * spec.itemsize for step in spec.stride)
        return np.lib.stride_tricks.as_strided(flat, spec.shape, steps)

    def arrays(self) -> list[npt.NDArray[Any]]:
        return [self.array(index) for index in range(len(self.specs))]

    def address(self, index: int) -> int:
        """Where tensor `index` starts in this process's memory."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._map, self.segments[index].data))

    def touch(self) -> None:
        """Reads a byte of every page, so that none is faulted in while a time is taken."""
        np.frombuffer(self._map, np.uint8, self.total_bytes)[::PAGE].max()

    def read_only_fd(self) -> int:
        """A new descriptor of the same memory that cannot be mapped for writing.

        Who has it could open the memory again, for writing: so from here on nobody can, and only
        mappings that exist already write.
        """
        with contextlib.suppress(OSError):  # Linux before 5.1 has no such seal
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Closes the descriptor; the mapping goes when the last array over it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        with contextlib.suppress(BufferError):  # arrays over it are alive; the interpreter frees it with them
            self._map.close()


@contextlib.contextmanager
def hidden(tensors: Sequence[SharedTensors]) -> Iterator[None]:
    """Zeros stand in place of what the tensors hold, for everybody who shares them, until the block ends.

    What they hold is kept in one place, whose pages stay: fresh ones cost several times the copy. Another thread waits,
    and a block within a block would wait for good.
    """
    with _keeping:
        segments = [one.bytes_of(at) for one in tensors for at in range(len(one.specs))]
        ends = np.cumsum([len(segment) for segment in segments], dtype=np.int64).tolist()
        _kept.resize(max(_kept.size, sum(map(len, segments))), refcheck=False)
        places = [_kept[end - len(segment) : end] for segment, end in zip(segments, ends, strict=True)]
        for segment, place in zip(segments, places, strict=True):
            place[:] = segment
        try:
            for segment in segments:
                segment[:] = 0
            yield
        finally:
            for segment, place in zip(segments, places, strict=True):
                segment[:] = place


@contextlib.contextmanager
def exchanged(*pairs: tuple[SharedTensors, SharedTensors]) -> Iterator[None]:
    """Until the block ends, two memories of one layout hold what the other held, for everybody who shares them."""
    _exchange(pairs)
    try:
        yield
    finally:
        _exchange(pairs)


def _exchange(pairs: Sequence[tuple[SharedTensors, SharedTensors]]) -> None:
    for one, other in pairs:
        for at in range(len(one.specs)):
            a, b = one.bytes_of(at), other.bytes_of(at)
            for start in range(0, len(a), _PIECE):
                piece = slice(start, start + _PIECE)
                a[piece], b[piece] = b[piece].copy(), a[piece].copy()


_kept = np.empty(0, np.uint8)
_keeping = threading.Lock()
