"""Codes of uneven levels as operands of products: sums of a basis where that gives all levels, else a table."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..arrays.array import QuantArray
from ..core.dtypes import Array, Constants, DType, basis, table

NEAR = 1e-6  # of the largest level: the rounding of a few float32 operations


def of_levels(q: QuantArray, levels: Array) -> QuantArray:
    """Return codes of ranks from 0 on as codes of levels[rank], float32; the words are shared.

    >>> import quantarray as qa
    >>> of_levels(qa.encode([0, 3, 2], values=range(4)), np.float32([0, 0.3, 0.8, 1.1])).dtype
    quantarray.basis(2)
    """
    ranks = q.dtype.levels
    if ranks is None or q.constants.shapes or min(ranks) < 0 or max(ranks) >= len(levels):
        raise ValueError(f"{len(levels)} levels do not go with codes of {q.dtype}")
    dtype, constants = _law(ranks, q.ndim, levels.astype(np.float32).tobytes())
    return QuantArray(q.words, dtype, q.shape, q.axis, constants)


@lru_cache(maxsize=256)
def _law(ranks: tuple[int, ...], ndim: int, levels: bytes) -> tuple[DType, Constants]:
    values = np.frombuffer(levels, np.float32)[list(ranks)]
    bits, ones = max(1, (len(values) - 1).bit_length()), (1,) * ndim
    steps = sums(values.astype(np.float64))
    if steps is not None:
        scale = steps.astype(np.float32).reshape(bits, *ones)
        return basis(bits), Constants(scale, values[:1].reshape(ones))
    return table(bits, len(values)), Constants(table=values.reshape(-1, *ones))


def sums(values: Array) -> Array | None:
    """Return v with values[code] = values[0] + sum_k v[k] * (bit k of the code) for all codes, or None.

    >>> sums(np.array([1.0, 1.5, 3.0, 3.5]))
    array([0.5, 2. ])
    """
    bits = (len(values) - 1).bit_length()
    if not bits or len(values) != 2**bits:
        return None
    v = values[1 << np.arange(bits)] - values[0]
    whole = values[0] + (np.arange(len(values))[:, None] >> np.arange(bits) & 1) @ v
    return v if np.abs(whole - values).max() <= NEAR * np.abs(values).max() else None


def basis_of(rising: Array, most: int = 8) -> tuple[float, Array] | None:
    """Return (offset, v) such that each of the rising levels is the offset and a sum of some v > 0; None without one.

    The smallest level that is no sum of the v before it is the next v: that finds the basis of all its sums.

    >>> basis_of(np.array([-1.0, -0.5, 1.0, 1.5]))
    (-1.0, array([0.5, 2. ]))
    """
    slack = NEAR * max(float(np.abs(rising).max()), float(rising[-1] - rising[0]))
    known, v = np.zeros(1), list[float]()
    for step in rising - rising[0]:
        if np.abs(known - step).min() > slack:
            if len(v) == most:
                return None
            v.append(float(step))
            known = np.concatenate([known, known + step])
    return float(rising[0]), np.array(v)


def weights(rows: Array) -> tuple[Array, Array, Array] | None:
    """Return (codes, v, offset) of weights rows [outputs elements]: uint8 codes, v [bits outputs], offset [outputs].

        rows[o, i] = offset[o] + sum_k v[k, o] * (bit k of codes[o, i])

    Each row has a basis of its own, with a plane for each level but the lowest where levels are no sums of others. None
    where a row needs more than 8 planes.
    """
    wide = rows.astype(np.float64)
    bases = [basis_of(_merged(np.unique(row))) for row in wide]
    width = max((0 if one is None else len(one[1]) for one in bases), default=0)
    codes, v, offset = np.empty(rows.shape, np.uint8), np.zeros((max(width, 1), len(rows))), np.empty(len(rows))
    for o, (row, one) in enumerate(zip(wide, bases, strict=True)):
        if one is None:
            return None
        offset[o], v[: len(one[1]), o] = one
        codes[o] = _nearest(row - one[0], one[1])
    return codes, v, offset


def _merged(levels: Array) -> Array:
    """Return rising levels, those that differ by rounding only as one."""
    apart = np.diff(levels) > NEAR * np.abs(levels).max()
    return np.asarray(levels[np.concatenate([[True], apart])])


def _nearest(row: Array, v: Array) -> Array:
    """Return the code of the nearest sum of v to each number."""
    values = (np.arange(2 ** len(v))[:, None] >> np.arange(len(v)) & 1) @ v
    order = np.argsort(values, kind="stable")
    rising = values[order]
    return np.asarray(order[np.searchsorted((rising[1:] + rising[:-1]) / 2, row)], np.uint8)
