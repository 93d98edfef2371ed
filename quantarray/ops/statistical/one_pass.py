"""Prepare one pass over words and numbers, which a compiled function reads: operands of any widths and dense ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import contiguous, kernel
from ...core.code_values import constant_dims, level_values
from ...core.dtypes import Array
from ...kernels.one_pass import Accumulator, Affine, Dense, Levels, Rows, Steps
from ..manipulation.repacking import repack
from ..manipulation.reshaping import reshape
from ..manipulation.views import expand_dims

_FEW = 1 << 16  # levels that no array is too small for
_ALMOST = 2.0**63 * (1 - 2.0**-40)  # above which float64 products of integers may be 2**63

Operand = Affine | Levels | Dense
Strides = tuple[int, ...]  # of the axes but the vector axis, in words, entries or numbers


def one_pass(
    op: str,
    f: Callable[..., Any],
    reductions: Callable[[int], Sequence[Any]],
    arrays: Sequence[QuantArray | Array],
    shape: tuple[int, ...],
    over: tuple[int, ...],
) -> tuple[list[Array], bool]:
    """Return the reduction of each result of f, [kept axes], and whether f returned a tuple.

    A row is along the vector axis: that along which the elements of the first dense array of the full shape are side by
    side, else the packed axis of the first packed array. Arrays that are packed otherwise are packed along it first.
    """
    reduce = kernel(next(a.device for a in arrays if isinstance(a, QuantArray)), op)
    widened = [_of_axes(a, len(shape)) for a in arrays]
    vector = _vector_axis(widened, shape)
    left = tuple(n for d, n in enumerate(shape) if d not in over)
    while _merges(widened, shape, over, vector):
        shape = (*shape[: vector - 1], shape[vector - 1] * shape[vector], *shape[vector + 1 :])
        widened = [_merged(a, vector) for a in widened]
        over = tuple(sorted({d - (d >= vector) for d in over}))
        vector -= 1
    outer = [d for d in range(len(shape)) if d != vector]
    remaining, folded = [d for d in outer if d not in over], [d for d in outer if d in over]
    operands, columns = [], []
    for a in widened:
        operand, strides = _packed(a, shape, vector) if isinstance(a, QuantArray) else _dense(a, shape, vector)
        operands.append(operand)
        columns += strides
    rows = Rows(_steps(columns, shape, remaining), _steps(columns, shape, folded), shape[vector], vector in over)
    out: list[Any] = []
    wanted: list[Any] = []

    def chosen(count: int) -> Sequence[Any]:
        wanted[:] = reductions(count)
        return wanted

    reduce(op, f, chosen, operands, rows, out)
    is_tuple = out.pop()
    n = rows.folds.number * (rows.length if rows.lanes else 1)
    dims = tuple(shape[d] for d in remaining) + (() if rows.lanes else (rows.length,))
    place = len(remaining) if rows.lanes else sum(d < vector for d in remaining)
    results = []
    for reduction, parts in zip(wanted, out, strict=True):
        result = _finished(op, reduction, n, [_joined(*part) for part in parts]).reshape(dims)
        results.append((result if rows.lanes else np.moveaxis(result, -1, place)).reshape(left))
    return results, is_tuple


def _of_axes(a: QuantArray | Array, ndim: int) -> Any:
    """Put axes of length 1 before those of an array."""
    if isinstance(a, QuantArray):
        return expand_dims(a, tuple(range(ndim - a.ndim))) if a.ndim < ndim else a
    return a.reshape((1,) * (ndim - a.ndim) + a.shape)


def _vector_axis(arrays: list[Any], shape: tuple[int, ...]) -> int:
    for a in arrays:
        if isinstance(a, np.ndarray) and a.shape == shape and a.size > 1:
            return min(
                (d for d, n in enumerate(shape) if n > 1), key=lambda d: (not a.strides[d], abs(a.strides[d]), -d)
            )
    axis: int = next(a.axis for a in arrays if isinstance(a, QuantArray))
    return axis


def _merges(arrays: list[Any], shape: tuple[int, ...], over: tuple[int, ...], vector: int) -> bool:
    """True if the axis before the vector axis goes on with it: in every array, and in the result."""
    first = vector - 1
    if first < 0 or (first in over) != (vector in over) or shape[first] == 1 or shape[vector] == 1:
        return False
    pair = shape[first], shape[vector]
    for a in arrays:
        if a.shape[first : vector + 1] not in (pair, (1, 1)):
            return False
        if isinstance(a, QuantArray):
            if a.constants.varies(first) or a.constants.varies(vector) or a.group is not None:
                return False
        elif a.shape == shape and a.strides[first] != a.strides[vector] * shape[vector]:
            return False
    return any(isinstance(a, np.ndarray) and a.shape == shape for a in arrays)


def _merged(a: Any, vector: int) -> Any:
    shape = (*a.shape[: vector - 1], a.shape[vector - 1] * a.shape[vector], *a.shape[vector + 1 :])
    if isinstance(a, QuantArray):
        return reshape(repack(a, vector) if a.axis == vector - 1 else a, shape)
    return a.reshape(shape)


def _joined(accumulator: Accumulator, parts: Array) -> Array:
    """Join the blocks of each result, one after the other."""
    total = parts[:, 0]
    with np.errstate(all="ignore"):
        for block in range(1, parts.shape[1]):
            total = accumulator.joined(total, parts[:, block])
    return total


def _finished(op: str, reduction: Any, n: int, parts: list[Array]) -> Array:
    """Turn accumulators into a result; refuse sums and products of integers that may not fit int64."""
    total = parts[0]
    if reduction in ("sum", "mean") and len(parts) == 2 and parts[1].size:
        most = 2 ** int(parts[1].max()).bit_length()
        if most * n > 2**63:
            raise OverflowError(f"{op}: sums of {n} integers of up to {most} may not fit int64; let f return floats")
    if reduction == "prod" and len(parts) == 2 and parts[1].size and not parts[1].max() < _ALMOST:
        raise OverflowError(f"{op}: a product of {n} integers does not fit int64; let f return floats")
    if reduction == "mean":
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(total / np.float64(n))
    return total.astype(np.bool_) if reduction in ("any", "all") else total


def _steps(columns: list[Strides], shape: tuple[int, ...], axes: list[int]) -> Steps:
    """Return the rows of some axes."""
    lengths = np.array([shape[d] for d in axes], np.int64)
    return Steps(
        lengths, np.array([[strides[d] for strides in columns] for d in axes], np.int64).reshape(-1, len(columns))
    )


def _dense(a: Array, shape: tuple[int, ...], vector: int) -> tuple[Operand, list[Strides]]:
    """View numbers as they are in memory; copy those whose order no kernel reads."""
    # What is broadcast by strides of 0 is copied once, if it is
    a = a[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in a.strides)]
    if a.dtype.kind == "f" and a.itemsize == 2:
        a = a.astype(np.float32)  # Numba's kernels have no floats of 16 bits
    size = a.itemsize
    if not a.flags.aligned or not a.dtype.isnative or any(s < 0 or s % size for s in a.strides):
        a = np.array(a, a.dtype.newbyteorder("="), order="C")
    strides = tuple(0 if n == 1 else s // size for n, s in zip(a.shape, a.strides, strict=True))
    reach = 1 + sum(s * (n - 1) for n, s in zip(shape, strides, strict=True)) if a.size else 0
    flat = np.lib.stride_tricks.as_strided(a, (reach,), (size,), writeable=False)
    return Dense(flat, strides[vector]), [strides]


def _packed(q: QuantArray, shape: tuple[int, ...], vector: int) -> tuple[Operand, list[Strides]]:
    """View the words, packed along the vector axis; with levels where these are not affine integers."""
    ndim, q = len(shape), repack(q, vector)
    words = contiguous(q.words)
    of_words = _strides(q.shape[:vector] + q.shape[vector + 1 :], words.shape[-1], vector)
    flat, along = words.reshape(q.bits, -1), q.shape[vector] > 1 or shape[vector] == 1
    exact = q.dtype.is_integer and not q.constants.has_scale
    if exact and q.dtype.step is not None and q.dtype.levels is not None:
        return Affine(flat, q.dtype.levels[0], q.dtype.step, along), [of_words]
    entries = int(np.prod(constant_dims(q.constants), dtype=np.int64))
    if entries * q.dtype.n_levels > max(_FEW, q.size):
        return _dense(q.dequantize(), shape, vector)
    levels = level_values(q.dtype, q.constants).astype(np.int32 if exact else np.float32)
    levels = levels.reshape(len(levels), *(levels.shape[1:] or (1,) * ndim))
    table = np.ascontiguousarray(np.moveaxis(np.moveaxis(levels, 0, -1), vector, -2))
    groups, count = table.shape[-2:]
    group = q.group or 1 if groups > 1 else 0
    of_entries = _strides(table.shape[:-2], groups * count, vector)
    return Levels(flat, table.reshape(-1), count, group, along), [of_words, of_entries]


def _strides(outer: tuple[int, ...], last: int, vector: int) -> Strides:
    """Return strides of C-contiguous rows of `last` numbers, 0 along axes of one row, with 0 for the vector axis."""
    strides = []
    for n in outer[::-1]:
        strides.append(0 if n == 1 else last)
        last *= n
    listed = strides[::-1]
    return (*listed[:vector], 0, *listed[vector:])
