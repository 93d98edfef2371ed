"""Evenly spaced codes, packed in one pass of the kernel that computes a scheme's `grid`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...backends.registry import device_of, empty, kernel, zeros
from ...core.dtypes import Array, Constants
from ...core.format import word_count
from ...core.recordings import is_set
from ...kernels.operands import FixedGrid
from ...quantizers.base import Quantizer
from ...quantizers.extremes import TAKEN
from ...quantizers.grid import Grid
from . import encoding


def grid_of(x: Array, quantizer: Quantizer, constants: Constants, axis: int) -> Grid | None:
    """Return the formula by which the kernel encodes an array; None where it can't, or thresholds are less work."""
    if not x.size or device_of(x) != "cpu" or x.dtype not in TAKEN:
        return None
    if not (encoding.has_grid(quantizer) and encoding.in_words(x, constants, axis)):
        return None
    few = quantizer.fixed and quantizer.dtype.bits <= 2
    return None if few and encoding.pays(x, quantizer, constants, axis) else quantizer.grid(constants)


class Encoder(NamedTuple):
    """Call the kernel with all operands that depend on the form of x and of its constants alone."""

    axis: int
    row: Array
    group: int
    words: tuple[int, ...]  # the shape of the result
    rows: tuple[int, int, int]  # the same as the kernel has it

    def __call__(self, x: Array, grid: Grid) -> Array | None:
        """Return words [bits, *outer, word] of x packed along the axis; None where x holds a NaN."""
        out, nan = empty("cpu", self.words), zeros("cpu", (encoding.PIECES,), np.bool_)
        kernel("cpu", "encode_grid")(encoding.in_runs(x, self.axis), *self._operands(grid), nan, out.reshape(self.rows))
        return None if is_set(nan) else out

    def fixed(self, quantizer: Quantizer, law: Constants) -> FixedGrid:
        """Return the kernel's operands but for x and its results."""
        grid = quantizer.grid(law)
        assert grid is not None
        return self._operands(grid)

    def _operands(self, grid: Grid) -> FixedGrid:
        start, step = _by_row(grid.start, self.axis), _by_row(grid.step, self.axis)
        return FixedGrid(start, step, grid.factor, grid.low, grid.high, grid.down, self.row, self.group)


def encoder(shape: tuple[int, ...], bits: int, constants: Constants, axis: int) -> Encoder:
    """Return an encoder of arrays of a shape whose constants have the form of these."""
    outer, length = shape[:axis] + shape[axis + 1 :], shape[axis]
    stored = next((inner for inner in constants.shapes), (1,) * len(shape))
    words = word_count(length)
    return Encoder(
        axis,
        encoding.row_tables(stored[:axis] + stored[axis + 1 :], outer),
        constants.group or length,
        (bits, *outer, words),
        (bits, math.prod(outer), words),
    )


def _by_row(constant: Array, axis: int) -> Array:
    """Return a constant as [row tables, groups]."""
    if constant.ndim == 0 or constant.shape[axis] == 1:
        return constant.reshape(-1, 1)
    last = np.moveaxis(constant, axis, -1)
    return np.ascontiguousarray(last).reshape(-1, last.shape[-1])
