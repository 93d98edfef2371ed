"""From values to packed codes in one pass, for any quantiser whose codes' values rise with x.

`Quantizer.encode` is the definition, in NumPy. Where few sets of constants serve many values, the thresholds at which
its codes change are found by bisection over all floats, so that the kernel's compares give exactly its codes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..device import kernel
from ..dtypes import Array, Constants, level_ranks
from ..format import WORD, WORD_BITS, word_count
from ..quantizers.base import Quantizer

MAX_THRESHOLDS = 15  # beyond 4 bits as many compares take longer than NumPy's way
_PIECES = 8  # ranges of words in which a NaN is looked for


def pays(x: Array, quantizer: Quantizer, constants: Constants, axis: int) -> bool:
    """True where the one-pass kernel gives the quantiser's codes and finding its thresholds is the smaller work."""
    few = quantizer.dtype.n_levels <= MAX_THRESHOLDS + 1
    if not (x.size and few and quantizer.monotone and x.dtype in (np.float32, np.float64)):
        return False
    if constants.group is not None and constants.group % WORD_BITS and constants.group < x.shape[axis]:
        return False
    sets = max((math.prod(a.shape[lead:]) for _, a, lead in constants.items()), default=1)
    return bool(sets * (quantizer.dtype.n_levels - 1) * 8 * x.dtype.itemsize <= x.size)


def encode(x: Array, quantizer: Quantizer, constants: Constants, axis: int) -> Array | None:
    """Words [bits, *outer, word] of x packed along an axis; None where x holds a NaN. See `pays`."""
    ndim = x.ndim
    thresholds, codes = _thresholds(quantizer, constants, axis, ndim, x.dtype)
    last = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    outer, length = last.shape[:-1], last.shape[-1]
    dims = thresholds.shape[:-2]
    row = np.broadcast_to(np.arange(math.prod(dims)).reshape(dims), outer).reshape(-1).astype(np.int64)
    out = np.empty((quantizer.dtype.bits, *outer, word_count(length)), WORD)
    nan = np.zeros(_PIECES, np.bool_)
    kernel("cpu", "encode")(
        last.reshape(-1, length) if last.size else last.reshape(0, length),
        np.ascontiguousarray(thresholds.reshape(-1, *thresholds.shape[-2:])),
        np.ascontiguousarray(codes.reshape(-1, *codes.shape[-2:])),
        row,
        constants.group or max(length, 1),
        nan,
        out.reshape(out.shape[0], -1, out.shape[-1]),
    )
    return None if nan.any() else out


def _thresholds(
    quantizer: Quantizer, constants: Constants, axis: int, ndim: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """(thresholds [*outer, groups, T], codes uint8 [*outer, groups, T + 1]) of a quantiser.

    Threshold t is the smallest value whose code ranks above t. Axes of length 1 are those along which nothing varies.
    """
    count = quantizer.dtype.n_levels - 1
    shapes = [a.shape[lead:] for _, a, lead in constants.items()]
    dims = list(np.broadcast_shapes((1,) * ndim, *shapes))
    wide = _repeat(constants, axis, count)
    ranks = np.argsort(_order(quantizer, constants, dims), axis=0)  # [codes, *dims]
    ranks = np.repeat(ranks, count, axis=axis + 1)
    shape = [count * n if d == axis else n for d, n in enumerate(dims)]
    wanted = np.tile(np.arange(1, count + 1), dims[axis]).reshape(-1, *(1,) * (ndim - 1 - axis))
    keys, value = _float_keys(dtype)
    low, high = np.full(shape, keys[0] - 1), np.full(shape, keys[1] + 1)
    while (low + 1 < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # neither sums nor differences fit into 64 bits
        with np.errstate(all="ignore"):
            codes = quantizer.encode(value(np.clip(middle, *keys)), wide)
        passed = np.take_along_axis(ranks, codes[None].astype(np.intp), 0)[0] >= wanted
        high, low = np.where(passed, middle, high), np.where(passed, low, middle)
    found = np.where(high > keys[1], np.nan, value(np.clip(high, *keys))).astype(dtype)  # NaN: never reached
    found = np.moveaxis(found, axis, -1).reshape(*_without(dims, axis), dims[axis], count)
    order = np.moveaxis(np.moveaxis(_order(quantizer, constants, dims), 0, -1), axis, -2)
    return found, np.ascontiguousarray(order, np.uint8)


def _without(shape: list[int], axis: int) -> list[int]:
    return shape[:axis] + shape[axis + 1 :]


def _order(quantizer: Quantizer, constants: Constants, dims: list[int]) -> Array:
    """The code of each rank, [codes, *dims]."""
    ranks = level_ranks(quantizer.dtype, constants)
    ranks = ranks.reshape(len(ranks), *(ranks.shape[1:] or (1,) * len(dims)))
    return np.argsort(np.broadcast_to(ranks, (len(ranks), *dims)), axis=0)


def _repeat(constants: Constants, axis: int, count: int) -> Constants:
    made = {
        name: np.repeat(a, count, axis=lead + axis) if a.shape[lead + axis] > 1 else a
        for name, a, lead in constants.items()
    }
    return Constants(made.get("scale"), made.get("offset"), made.get("table"))


def _float_keys(dtype: np.dtype[Any]) -> tuple[tuple[int, int], Any]:
    """Integers in the order of the floats from -inf to inf, and the float of an integer."""
    whole = np.int32 if dtype == np.float32 else np.int64
    top = int(np.array(np.inf, dtype).view(whole))

    def value(k: Array) -> Array:
        magnitude = np.abs(k).astype(whole).view(dtype)
        return np.where(k < 0, -magnitude, magnitude)

    return (-top, top), value
