"""Values of uniform laws, each computed in float64: two operations, where looking it up takes a load."""

import numpy as np

from ...core.format import WORD_BITS
from ..runtime.launch import inline
from ..runtime.target import libdevice
from . import unpacking


def decode_uniform(words, low, step, group, out):
    if not out.size:
        return
    length = out.shape[1]
    if length % WORD_BITS == 0 and length % group == 0:
        words, out = unpacking.in_one_row(words, out)
        low, step = low.reshape(1, -1), step.reshape(1, -1)
    value = _bits_of[out.dtype]
    unpacking.run(words, out, low, step, 0 if low.shape[1] == 1 else group, _constants, value)


@inline
def _constants(low, step, row, part):
    return np.float64(low[row, part]), np.float64(step[row, part])


@inline
def _rounded(code, low, step):
    return np.float32(libdevice.dadd_rn(low, libdevice.dmul_rn(step, np.float64(code))))


@inline
def _float32(code, low, step, a, shown):
    return _rounded(code, low, step).view(np.uint32)


@inline
def _float16(code, low, step, a, shown):
    return np.uint32(np.uint16(libdevice.float2half_rn(_rounded(code, low, step))))


@inline
def _bfloat16(code, low, step, a, shown):
    """Round to the upper half, ties to the even one. No value is NaN, whose bits might carry into its sign."""
    bits = _rounded(code, low, step).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)


_bits_of = {np.dtype(np.float32): _float32, np.dtype(np.float16): _float16, np.dtype(np.uint16): _bfloat16}
