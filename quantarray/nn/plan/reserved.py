"""Reserved memory: arrays without elements, of which the system says whether anybody has read or written one."""

from __future__ import annotations

import ctypes
import math
import mmap
from bisect import bisect_right
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array

_LEAST = 1 << 26  # bytes that are reserved at a time, which nobody allocates before they are touched
_FLAGS = sum(getattr(mmap, name, 0) for name in ("MAP_PRIVATE", "MAP_ANONYMOUS", "MAP_NORESERVE"))


def address(a: Array) -> int:
    """Return the address of an array's first byte."""
    return int(a.__array_interface__["data"][0])


class Place(NamedTuple):
    """A piece of reserved memory: what an array was allocated in. `cleared`: it is zero before its first launch."""

    address: int
    nbytes: int
    cleared: bool


class Reserved:
    """A set of arrays that have shapes, dtypes and addresses, but no elements: each is on pages of its own.

    Pages of a fresh mapping are not resident, and the first read or write of one makes it so. Works on what a function
    does with arrays, however it does that: NumPy, a buffer, a pointer.
    """

    def __init__(self) -> None:
        self._chunks: list[tuple[int, mmap.mmap]] = []
        self._end = self._left = 0  # of the last chunk
        self.places: list[Place] = []
        self._begins: list[int] = []  # addresses of places, and their numbers, in order
        self._numbers: list[int] = []

    def array(self, shape: tuple[int, ...], dtype: Any, cleared: bool = False) -> Array:
        """Return an array that nobody may read or write. Raises OSError where no memory can be reserved."""
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        pages = (-(-size // mmap.PAGESIZE) + 1) * mmap.PAGESIZE  # one more, which is never touched
        if pages > self._left:
            self._reserve(max(pages, _LEAST))
        start, memory = self._chunks[-1]
        at = self._end - self._left
        self._left -= pages
        i = bisect_right(self._begins, start + at)
        self._begins.insert(i, start + at)
        self._numbers.insert(i, len(self.places))
        self.places.append(Place(start + at, size, cleared))
        return np.ndarray(shape, kind, memory, at)

    def _reserve(self, size: int) -> None:
        memory = mmap.mmap(-1, size, flags=_FLAGS)
        self._chunks.append((ctypes.addressof(ctypes.c_char.from_buffer(memory)), memory))
        self._end = self._left = size

    def place_of(self, a: Array) -> int | None:
        """Return the number of the place that has the memory of an array or a view; None for other memory."""
        i = bisect_right(self._begins, address(a)) - 1
        if i < 0 or address(a) > self._begins[i] + self.places[self._numbers[i]].nbytes:
            return None
        return self._numbers[i]

    def has_addresses(self, numbers: Array) -> bool:
        """Return True if there are addresses of the memory among numbers."""
        return any(((numbers >= start) & (numbers < start + len(memory))).any() for start, memory in self._chunks)

    def is_touched(self) -> bool:
        """Return True if an element was read or written."""
        return any(_resident(start, len(memory)) for start, memory in self._chunks)


def _resident(start: int, size: int) -> bool:
    """Return True if a page is resident. Raises OSError where the system does not say."""
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    if ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), pages):
        raise OSError(ctypes.get_errno(), "mincore")
    return any(byte & 1 for byte in pages.raw.strip(b"\0"))


@cache
def is_told() -> bool:
    """Return True if the system says which pages are resident, which Windows and some containers do not."""
    with suppress(OSError, AttributeError, TypeError):
        for write in (False, True):
            reserved = Reserved()
            arrays = [reserved.array((2000,), np.float32) for _ in range(2)]
            if reserved.is_touched():
                return False
            if write:
                arrays[1][1500] = 1
            else:
                arrays[0].max()
            if not reserved.is_touched():
                return False
        return True
    return False
