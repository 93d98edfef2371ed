"""Hold packed words in memory mappings of their own, and give freed memory back to the system."""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

import numpy as np

from ..core.dtypes import Array
from ..core.format import LINE, WORD

_CHUNK = 1 << 20  # bytes of a mapping, at least
_M_MMAP_THRESHOLD = -3  # of glibc's mallopt


class Arena:
    """A row of anonymous mappings. Arrays are taken from them in order, and a mapping ends with the last array in it.

    Words that stay until the backward pass would lie between the activations that are freed, and the C library, which
    returns memory from the end of its heap, could not return what is around them.
    """

    def __init__(self) -> None:
        self._chunk, self._begin, self._end = mmap.mmap(-1, LINE), 0, 0

    def take(self, planes: int, count: int) -> Array:
        """Return words [planes 1 count], all of which the caller has to write: those given back hold what was there."""
        begin, size = self._begin, planes * count * WORD.itemsize
        if begin + size > self._end:
            begin, self._end = 0, size if size > _CHUNK else _CHUNK
            self._chunk = mmap.mmap(-1, self._end)
        self._begin = (begin + size + LINE - 1) // LINE * LINE
        return np.ndarray((planes, 1, count), WORD, self._chunk, begin)

    def give_back(self, words: Array) -> None:
        """Return the words that were taken last."""
        self._begin = (self._begin - words.nbytes) // LINE * LINE


def trim() -> None:
    """Return the free pages of the C library's heap to the system; does nothing where it is not glibc."""
    function = _of_glibc("malloc_trim")
    if function is not None:
        function(ctypes.c_size_t(0))


def resident() -> int:
    """Return the bytes of the process that are in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb", 0) as status:
            return int(status.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def map_from(nbytes: int) -> None:
    """Let the C library map each block of this size or more by itself, for the whole process from now on.

    Does nothing where it is not glibc.
    """
    function = _of_glibc("mallopt")
    if function is not None:
        function(_M_MMAP_THRESHOLD, nbytes)


@cache
def _of_glibc(name: str) -> Any:
    try:
        library = ctypes.CDLL(None)
    except TypeError:  # Windows
        return None
    return getattr(library, name, None) if hasattr(library, "gnu_get_libc_version") else None
