"""Convolutions and matrix products of float32 arrays on the CPU, by a kernel on the threads of all others.

Large ones are left to NumPy: the kernel reads a matrix again for every few rows, a BLAS keeps parts of it in a cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.registry import empty, kernel
from ...core.dtypes import Array

_AXES = 3  # of an image
_FEW_ROWS = 12  # for which a matrix of any size is read once
_MANY = 1 << 20  # elements of a matrix that a cache holds: 4 MiB
_PRODUCTS = 1 << 27  # that take 10 ms or less, and a BLAS 3; its threads then wait busily for longer than that
_POINTS = np.array([(1, 1, 1, 0)] * _AXES, np.int64)


def takes(rows: int, *operands: Any) -> bool:
    """Return True if the kernel takes a product of so many rows: of float32 NumPy arrays, small or of few products."""
    return all(isinstance(a, np.ndarray) and a.dtype == np.float32 for a in operands) and (
        rows <= _FEW_ROWS or operands[1].size <= _MANY or rows * operands[1].size <= _PRODUCTS
    )


def matrix_product(x: Array, w: Array) -> Array:
    """x [m k] @ w [k n]."""
    form = np.array([(len(x), 1, 1, 1, x.shape[1]), (x.shape[1], 0, 0, 0, 1), (len(x), 1, 1, 1, 0)])
    return _product(np.ascontiguousarray(x), form, _POINTS, w, None, len(x))


def convolved(
    x: Array, w: Array, stride: Sequence[int], dilation: Sequence[int], before: Sequence[int], output: Sequence[int],
    bias: Array | None = None,
) -> Array:  # fmt: skip
    """Convolve x [n c ..] of one to three axes with w [o c/groups ..]; the result [n o ..] is stored channels last.

    before: places of padding in front of each axis. bias [o]. Sums go by taps in order, then channels. x is read in
    place if it is contiguous with channels first or last; w is copied unless its outputs are last and its channels
    before them, as `in_order` puts them.
    """
    missing = _AXES - (x.ndim - 2)
    last = np.moveaxis(x, 1, -1)
    if not x.flags.c_contiguous and not last.flags.c_contiguous:
        x = np.ascontiguousarray(x)
        last = np.moveaxis(x, 1, -1)
    apart = [step // x.itemsize for step in last.strides]
    lengths = len(x), *(1,) * missing, *last.shape[1:]
    form = np.array([lengths, (apart[0], *(0,) * missing, *apart[1:]), (len(x), *(1,) * missing, *output, 0)])
    axes = zip(w.shape[2:], stride, dilation, before, strict=True)
    grid = np.array([(1, 1, 1, 0)] * missing + list(axes), np.int64)
    flat = x if x.flags.c_contiguous else last
    pixels = len(x) * math.prod(output)
    out = _product(flat, form, grid, np.moveaxis(in_order(w), (0, 1), (-1, -2)).reshape(-1, len(w)), bias, pixels)
    return np.moveaxis(out.reshape(len(x), *output, len(w)), -1, 1)


def in_order(w: Array) -> Array:
    """Return w [o c ..] as the kernel reads it: in memory by taps, then channels, then outputs."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2))), (-1, -2), (0, 1))


def _product(x: Array, form: Array, grid: Array, w: Array, bias: Array | None, rows: int) -> Array:
    out = empty("cpu", (rows, w.shape[1]), np.float32)
    added = np.zeros(w.shape[1], np.float32) if bias is None else np.ascontiguousarray(bias, np.float32)
    kernel("cpu", "float_product")(x.reshape(-1), form, grid, np.ascontiguousarray(w), added, out)
    return out
