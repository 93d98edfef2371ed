"""Codes of one or two packed arrays to codes, through a table."""

from __future__ import annotations

import math

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import contiguous, empty, has_kernel, kernel
from ...core.dtypes import Array, DType

NO_FACTORS = np.zeros(0, np.float32)


def look_up(q: QuantArray, other: QuantArray | None, table: Array, factors: Array, dtype: DType) -> QuantArray:
    """Return codes of dtype: table[c + 2**bits * d] of each code c of q, of so many bits, and d of `other`.

    other: as q, of the same shape and axis. table uint8, an entry for all codes that the bits of both have. factors:
    NO_FACTORS, or those by which the kernel `look_up` computes the table.
    """
    words = contiguous(q.words)
    others = words[:0] if other is None else contiguous(other.words)
    out = empty(q.device, (dtype.bits, *words.shape[1:]))
    length, rows = q.shape[q.axis], math.prod(words.shape[1:-1])
    read, above, result = (a.reshape(len(a), rows, a.shape[-1]) for a in (words, others, out))
    if has_kernel(q.device, "look_up"):
        kernel(q.device, "look_up")(read, above, table, factors, length, result)
    elif out.size:
        every = np.zeros(1, np.int64)
        kernel(q.device, "recode")(read, above, table[None, None].astype(np.uint32), every, length, length, result)
    return QuantArray(out, dtype, q.shape, q.axis)


def scaled_sum(factors: Array, bits: tuple[int, int]) -> Array:
    """Compute the table of `look_up` that factors float32[8] stand for, for codes of so many bits.

    >>> scaled_sum(np.array([0.5, 0, 0.5, -0.5, 1, 0, 0, 255], np.float32), (2, 1))
    array([0, 0, 0, 1, 0, 0, 1, 2], dtype=uint8)
    """
    c, d = (np.arange(2**n, dtype=np.float64) for n in bits)
    f = factors.astype(np.float64)
    left, right = ((codes * f[i] + f[i + 1]).astype(np.float32) for i, codes in ((0, c), (2, d)))
    level = np.rint((left + right[:, None]) * factors[4]) + factors[5]
    return np.asarray(np.clip(level, factors[6], factors[7]).astype(np.uint8).reshape(-1))
