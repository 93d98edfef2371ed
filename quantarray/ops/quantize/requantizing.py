"""Quantise packed arrays by their levels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...arrays.array import QuantArray
from ...core.code_values import level_values
from ...core.dtypes import Array, Constants
from ...quantizers.base import Quantizer
from ..manipulation.repacking import repack
from ..words.conversion import recode
from . import encoding

Encoded = Callable[[str, Array, Quantizer, Constants, int], QuantArray]


def by_levels(op: str, q: QuantArray, quantizer: Quantizer, at: int, encoded: Encoded) -> QuantArray:
    """Give each code of q the code that a scheme with fixed constants gives to its value; no value is made."""
    levels = level_values(q.dtype, q.constants)
    table = levels.reshape(len(levels), *(levels.shape[1:] or (1,) * q.ndim))
    row = table.astype(np.int32 if table.dtype.kind == "i" else np.float32).reshape(-1)  # as `dequantize` has them
    ranks = encoded(op, row, quantizer, encoding.fit(op, quantizer, row, (0,)), 0)
    words = recode(q, ranks.codes().reshape(table.shape), quantizer.dtype.bits)
    law = ranks.constants.map(lambda c, lead: c.reshape(c.shape[:lead] + (1,) * q.ndim))
    return repack(QuantArray(words, quantizer.dtype, q.shape, q.axis, law, repr(quantizer)), at)
