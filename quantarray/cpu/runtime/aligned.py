"""Allocate buffers that begin a cache line: a vector that crosses two lines takes as long as two. Numba aligns to 32
bytes.
"""

import numpy as np

from ...core.format import LINE
from ..llvm.vectors import LANES
from .jit import inner


@inner
def first_line(buffer):
    """Return the first byte of a buffer that begins a line."""
    return -buffer.ctypes.data % LINE


@inner
def empty_lines(rows, dtype):
    """Allocate an undefined array [rows, lanes] of a dtype."""
    buffer = np.empty(rows * LANES + LINE, dtype)
    first = first_line(buffer) // buffer.itemsize
    return buffer[first : first + rows * LANES].reshape(rows, LANES)
