"""The bit format: the one place that knows how codes are stored in words.

A packed array is `words uint64[planes, *outer, word]`. Element i of the packed axis is bit `i % 64` of word
`i // 64`; plane k holds bit k of the code. `outer` are the other axes in logical order, so an NCHW array packed
on C and an NHWC array packed on C have the same words. Bits after the last element (the tail) are zero.

Planes are outermost. As an inner axis they would be a little closer together in a convolution, but merging unpacked
axes into the packed one, which every network does before its first dense layer, would then copy.
`docs/decisions/0002-plane-order.md` has the measurement.
"""

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

WORD_BITS = 64
WORD = np.dtype("<u8")
MAX_BITS = 8
MAX_AXES = 63  # beside the planes: NumPy has 64
LINE = 64  # bytes of the CPU's cache
RUN_WORDS = 1 << 16  # words of a run of a plan, at most
RUN_PLANES = 9  # whose counts over a run 32 bits hold: (2**9 - 1) * 64 * 2**16 < 2**31


def word_count(n: int) -> int:
    """Count the words that hold n bits.

    >>> word_count(0), word_count(1), word_count(64), word_count(65)
    (0, 1, 1, 2)
    """
    return -(-n // WORD_BITS)


def empty_lines(shape: tuple[int, ...], dtype: np.dtype[Any] = WORD) -> npt.NDArray[Any]:
    """Allocate an uninitialised array that begins on a cache line: vectors of 64 bytes then never cross two.

    >>> empty_lines((2, 1000)).ctypes.data % 64
    0
    """
    raw = np.empty(math.prod(shape) * dtype.itemsize + LINE, np.uint8)
    address = ctypes.addressof(ctypes.c_char.from_buffer(raw.data))  # raw.ctypes.data takes four times as long
    return np.ndarray(shape, dtype, raw, -address % LINE)


def locked(a: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view of an array that is read-only for good: what owns the memory is locked too, so no flag unlocks the
    view.

    Memory that another library owns cannot be locked, and is seen through a read-only buffer. Others take 0.2 to 0.3 us
    (`setflags` sets `write` by place; by name it takes 0.3 us more), of which a view that is read-only by its own flag
    alone would take 0.15.

    >>> import numpy as np
    >>> locked(np.zeros(3)).flags.writeable = True
    Traceback (most recent call last):
    ValueError: cannot set WRITEABLE flag to True of this array
    """
    owner = a.base
    if owner is not None:
        if type(owner) is not np.ndarray or owner.base is not None:
            return np.asarray(a.data.toreadonly())
        owner.setflags(False)  # type: ignore[call-arg]
    a.setflags(False)  # type: ignore[call-arg]
    return a.view()


def is_locked(a: npt.NDArray[Any]) -> bool:
    """True for what `locked` gives, and views of it.

    >>> import numpy as np
    >>> a = np.zeros(3)
    >>> is_locked(a), is_locked(locked(a)), is_locked(locked(a)[1:])
    (False, True, True)
    """
    base = a.base
    if a.flags.writeable or base is None:
        return False
    return base.readonly if isinstance(base, memoryview) else type(base) is np.ndarray and not base.flags.writeable


def tail_mask(n: int) -> int:
    """Set the bits in use of the last word of a row of n bits.

    >>> hex(tail_mask(3)), hex(tail_mask(64))
    ('0x7', '0xffffffffffffffff')
    """
    used = n % WORD_BITS
    return (1 << used) - 1 if used else (1 << WORD_BITS) - 1


def bits_for(levels: int) -> int:
    """Count the bits that tell `levels` codes apart, at least 1.

    >>> bits_for(1), bits_for(2), bits_for(3), bits_for(256)
    (1, 1, 2, 8)
    """
    return max(1, (levels - 1).bit_length())
