"""Round a flat array in groups, with a new seed each time: what a training step does with every activation."""

from __future__ import annotations

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import empty, kernel, zeros
from ...core.dtypes import Array, Constants
from ...core.format import WORD_BITS, word_count
from ...quantizers.grouped import DIGITS, Grouped, kernel_key, upper_half
from .quantization import quantize


def round_flat(x: Array, scheme: Grouped) -> QuantArray:
    """`quantize(x, scheme)` of a contiguous x with one axis, without its preparation, which depends on the seed.

    The last group may be shorter. Raises ValueError for NaN and infinities, as `quantize` does.
    """
    usual: int = scheme.group or 1
    group = min(usual, max(x.size, 1))
    if x.size and usual % WORD_BITS == 0 and x.dtype in (np.float32, np.float64):
        constants, wrong = empty("cpu", (2, -(-x.size // group)), np.float32), zeros("cpu", (1,), np.bool_)
        out = empty("cpu", (scheme.bits, 1, word_count(x.size)))
        digits = DIGITS[scheme.constants]
        kernel("cpu", "encode_groups")(x[None], group, digits, kernel_key(scheme), wrong, constants, out)
        if not wrong.item():
            stored = upper_half(constants) if scheme.constants == "bfloat16" else constants
            stored.setflags(write=False)
            law = Constants(stored[0], stored[1], None, group if x.size > group else None)
            return QuantArray(out.reshape(scheme.bits, -1), scheme.dtype, x.shape, 0, law, repr(scheme))
    return quantize(x, scheme)
