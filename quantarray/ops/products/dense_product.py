"""Convolutions and matrix products of float32 arrays by a kernel, on the CPU on the threads of all others.

Large ones are left to NumPy, or CuPy: the kernel reads a matrix again for every few rows, a BLAS keeps parts of it in
a cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.registry import contiguous, device_of, empty, kernel, moveaxis, zeros
from ...core.dtypes import Array
from ...core.forks import cached_property

_AXES = 3  # of an image
_FEW_ROWS = 12  # for which a matrix of any size is read once
_MANY = 1 << 20  # elements of a matrix that a cache holds: 4 MiB
_PRODUCTS = 1 << 27  # that take 10 ms or less, and a BLAS 3; its threads then wait busily for longer than that
_POINTS = np.array([(1, 1, 1, 0)] * _AXES, np.int64)


@dataclass(frozen=True)
class ScaledBytes:
    """A float32 matrix [k n] as int8 times a scale for each column, on the CPU: a quarter of the memory to read.

    For one row, 4096 x 1000 take 0.3 ms instead of 1.2 from memory.
    """

    integers: Array
    scale: Array  # float32[n]

    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.integers), len(self.scale)

    @property
    def size(self) -> int:
        return self.integers.size

    @cached_property
    def values(self) -> Array:
        """Compute the matrix itself, for products that the kernel does not take."""
        return self.integers.astype(np.float32) * self.scale


def takes(rows: int, *operands: Any) -> bool:
    """Return True if the kernel takes a product of so many rows: of float32 arrays, small or of few products."""
    return all(a.dtype == np.float32 for a in operands) and (
        rows <= _FEW_ROWS or operands[1].size <= _MANY or rows * operands[1].size <= _PRODUCTS
    )


def matrix_product(x: Array, w: Array | ScaledBytes) -> Array:
    """x [m k] @ w [k n]."""
    form = np.array([(len(x), 1, 1, 1, x.shape[1]), (x.shape[1], 0, 0, 0, 1), (len(x), 1, 1, 1, 0)])
    return _product(contiguous(x), form, _POINTS, w, None, len(x))


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
    last = moveaxis(x, 1, -1)
    if not x.flags.c_contiguous and not last.flags.c_contiguous:
        x = contiguous(x)
        last = moveaxis(x, 1, -1)
    apart = [step // x.itemsize for step in last.strides]
    lengths = len(x), *(1,) * missing, *last.shape[1:]
    form = np.array([lengths, (apart[0], *(0,) * missing, *apart[1:]), (len(x), *(1,) * missing, *output, 0)])
    axes = zip(w.shape[2:], stride, dilation, before, strict=True)
    grid = np.array([(1, 1, 1, 0)] * missing + list(axes), np.int64)
    flat = x if x.flags.c_contiguous else last
    pixels = len(x) * math.prod(output)
    out = _product(flat, form, grid, _by_outputs(in_order(w)).reshape(-1, len(w)), bias, pixels)
    return moveaxis(out.reshape(len(x), *output, len(w)), -1, 1)


def in_order(w: Array) -> Array:
    """Return w [o c ..] as the kernel reads it: in memory by taps, then channels, then outputs."""
    last = contiguous(_by_outputs(w))
    return last.transpose(last.ndim - 1, last.ndim - 2, *range(last.ndim - 2))


def _by_outputs(w: Array) -> Array:
    """View w [o c ..] as [.. c o]."""
    return w.transpose(*range(2, w.ndim), 1, 0)


def _product(x: Array, form: Array, grid: Array, w: Array | ScaledBytes, bias: Array | None, rows: int) -> Array:
    device = device_of(x)
    out = empty(device, (rows, w.shape[1]), np.float32)
    bias = zeros(device, (w.shape[1],), np.float32) if bias is None else contiguous(bias)
    if isinstance(w, ScaledBytes):
        kernel(device, "scaled_product")(x.reshape(-1), form, grid, w.integers, w.scale, bias, out)
    else:
        kernel(device, "float_product")(x.reshape(-1), form, grid, contiguous(w), bias, out)
    return out
