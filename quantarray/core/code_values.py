"""Values of codes, by the formulas of `core/dtypes.py`: of each code, of an array of codes, and their order."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .bfloat16 import bfloat16_values
from .dtypes import Array, Constants, DType
from .format import MAX_BITS
from .super_blocks import MOST, SuperBlocks

_AT_ONCE = 1 << 19  # levels that are computed at once, 4 MiB in float64


def all_finite(a: Array) -> bool:
    """Return True without a NaN and an infinity; many numbers are read without an array of as many bools.

    >>> all_finite(np.float32([1, np.nan])), all_finite(np.float32([]))
    (False, True)
    """
    if a.size <= _AT_ONCE:
        return bool(np.isfinite(a).all())
    return bool(np.isfinite(a.min()) and np.isfinite(a.max()))  # both are NaN where there is one


def largest(a: Array | None) -> float:
    """Return the largest magnitude, 0 where there is none.

    >>> largest(np.float32([1, -2.5])), largest(None)
    (2.5, 0.0)
    """
    return 0.0 if a is None else max(float(a.max(initial=0)), -float(a.min(initial=0)))


def _reach(constants: Constants) -> float:
    """Return the largest magnitudes of scale and offset together; of super-blocks, the largest that there can be."""
    both = (a for name, a, _ in constants.stored() if name != "table")
    of_bits = bfloat16_values if constants.bfloat16 else np.asarray
    return sum(MOST if isinstance(a, SuperBlocks) else largest(of_bits(a)) for a in both)


def outermost(dtype: DType, constants: Constants) -> list[Array]:
    """Return the outermost levels in float64, where some may be beyond float32: finite constants can have such."""
    steps = dtype.max_abs if dtype.is_integer else 2**MAX_BITS
    if steps * _reach(constants) < 1e38:
        return []  # as of most arrays: the copies below take more than the words where groups are short
    scale, offset = (None if a is None else a.astype(np.float64) for a in (constants.scale, constants.offset))
    if scale is None or offset is None:
        return [] if scale is None else [scale * dtype.max_abs]
    if dtype.kind == "uniform":
        return [offset + scale * (dtype.n_levels - 1)]
    return [offset + np.minimum(scale, 0).sum(axis=0), offset + np.maximum(scale, 0).sum(axis=0)]


def level_values(dtype: DType, constants: Constants) -> Array:
    """Compute every code's value, [n_levels, *constants' shape]; float32, or int64 for integer levels without a scale.

    Where they are many, of one code after the other: of all at once, float64 would take twice as much as the result.
    """
    if constants.table is not None:
        return constants.table
    dims = constant_dims(constants)
    codes = np.arange(dtype.n_levels).reshape(-1, *(1,) * len(dims))
    if math.prod(dims) * len(codes) <= _AT_ONCE:
        return values_of_codes(dtype, constants, codes)
    out = np.empty((len(codes), *dims), np.float32)
    for code in codes:
        out[int(code.flat[0])] = values_of_codes(dtype, constants, code)
    return out


def constant_dims(constants: Constants) -> tuple[int, ...]:
    """Return the shape to which constants broadcast, without their leading axes; () for none."""
    return np.broadcast_shapes(*(a.shape[lead:] for _, a, lead in constants.stored()))


def values_of_codes(dtype: DType, constants: Constants, codes: Array) -> Array:
    """Compute the value of each code; float32, or int64 for integer levels without a scale. No table.

    codes: integers whose shape broadcasts with the constants, those in groups already repeated. Computed in float64 in
    the order of the formulas above and rounded to float32 once, here and nowhere else.
    """
    scale, offset = (None if a is None else a.astype(np.float64) for a in (constants.scale, constants.offset))
    if dtype.levels is not None:
        exact = np.array(dtype.levels, np.int64)[codes]
        return np.asarray(exact if scale is None else (scale * exact).astype(np.float32))
    assert scale is not None and offset is not None
    if dtype.kind == "uniform":
        return np.asarray((offset + scale * codes).astype(np.float32))
    value = offset
    for k in range(dtype.bits):
        value = value + scale[k] * ((codes >> k) & 1)
    return np.asarray(value.astype(np.float32))


def level_ranks(dtype: DType, constants: Constants) -> Array:
    """Rank each code: the place of each code's value among all values, 0 for the smallest: uint8 [n_levels, *constants'
    shape].

    Codes of equal value rank in code order. Pooling and comparison go by rank, because the order of codes is not
    the order of values where a basis is unordered or a scale negative.
    """
    return _ranks(dtype, constants) if constants.shapes else _plain_ranks(dtype)


@lru_cache(maxsize=256)
def _plain_ranks(dtype: DType) -> Array:
    """Rank the levels that a dtype alone knows, cached: nobody writes to the result."""
    return _ranks(dtype, Constants())


def _ranks(dtype: DType, constants: Constants) -> Array:
    order = np.argsort(level_values(dtype, constants), axis=0, kind="stable")
    return np.argsort(order, axis=0, kind="stable").astype(np.uint8)
