"""Codes as the second operand of a chain: it reads their words, and nobody decodes them to memory before."""

import numpy as np

from ..bits.decode_levels import _decode_stretches
from .elementwise import _elementwise

_WORD = 64


def packed_shortcut(decoding, chain):
    """Return (words [planes rows words], levels) by which a launch of a chain needs no launch that decodes codes.

    levels are int32 (level of code 0, distance of two). None where they are other launches, the codes are not those of
    the chain's second operand, or their levels are not evenly spaced integers.
    """
    if decoding.kernel is not _decode_stretches or chain.kernel is not _elementwise:
        return None
    words, planes, _, table, _, _, decoded, length = decoding.arguments
    other = chain.arguments[1]
    if other.ctypes.data != decoded.ctypes.data:  # the chain's first operand
        return None
    levels = table.view(np.int32).reshape(-1).astype(np.int64)
    if other.dtype != np.int32 or other.ndim != 2 or other.nbytes != decoded.nbytes or len(table) * table.shape[1] > 1:
        return None
    rows, channels = other.shape
    whole = length == channels or (length % channels == 0 and channels % _WORD == 0)
    steps, per_row = np.unique(np.diff(levels)), -(-channels // _WORD)
    if not whole or words.size != planes * rows * per_row or len(steps) != 1:
        return None
    return words.reshape(planes, rows, per_row), np.array([levels[0], steps[0]], np.int32)
