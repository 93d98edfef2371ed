"""Floats as integers times a scale, or as some numbers at uneven distances, found by their values alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.dtypes import Array
from ..levels import basis_of
from ..onnx.laws import Constant

_NEAR = 5e-7  # of the largest magnitude: the rounding of a few float32 operations
_MOST = 256  # levels
_SAMPLE = 1 << 14  # values of large arrays that are looked at first
_PARTS = (1, 2, 3, 4, 5, 6)  # a step is the smallest difference of two levels over one of these


class Grid(NamedTuple):
    """A grid of numbers `k * scale` of integers k from `low` to `high`."""

    scale: float
    low: int
    high: int

    def integers(self, a: Array) -> Array:
        """Return the nearest integer k of each number."""
        return np.rint(a.astype(np.float64) / self.scale).astype(np.int64)


class Uneven(NamedTuple):
    """A set of numbers at uneven distances, each once, in the order in which a function takes them as x grows."""

    values: Array

    @property
    def low(self) -> int:
        """Return the first place."""
        return 0

    @property
    def high(self) -> int:
        """Return the last place."""
        return len(self.values) - 1

    def integers(self, a: Array) -> Array:
        """Return the place of the nearest number."""
        order = np.argsort(self.values, kind="stable")
        rising = self.values[order]
        return np.asarray(order[np.searchsorted((rising[1:] + rising[:-1]) / 2, a.astype(np.float64))])

    def levels(self) -> tuple[tuple[int, ...], Array]:
        """Return the place that each code means, and the number at each place; codes are sums of a basis if such sums
        are all the numbers.
        """
        basis = self.basis
        if basis is None:
            return tuple(range(len(self.values))), self.values
        codes = np.arange(len(self.values))[:, None] >> np.arange(len(basis[1])) & 1
        return tuple(self.integers(basis[0] + codes @ basis[1]).tolist()), self.values

    @property
    def basis(self) -> tuple[float, Array] | None:
        """Return (offset, v) whose sums are all the numbers, each once; None where there is none."""
        basis = basis_of(np.sort(self.values))
        return basis if basis is not None and len(self.values) == 2 ** len(basis[1]) else None


def uneven_of(y: Array) -> Uneven | None:
    """Return the levels of a function by its values y [x channels] for growing x; None if it does not quantise.

    At least one channel takes all levels, each for one stretch of x, and for two values of x on average.
    """
    levels = clusters(y)
    if levels is None or len(levels) < 2 or len(y) < 2 * len(levels):
        return None
    near = Uneven(levels)
    places = near.integers(y)
    for column in places.T:
        runs = column[np.concatenate([[True], column[1:] != column[:-1]])]
        if len(runs) == len(levels) == len(set(runs.tolist())):
            return Uneven(levels[runs if levels[runs[0]] < levels[runs[-1]] else runs[::-1]])
    return None


def grid_of(values: Array) -> Grid | None:
    """Return the coarsest grid through 0 that has all values; None if there is none of at most 256 levels."""
    if values.size > 2 * _SAMPLE:
        some = grid_of(values.reshape(-1)[:: values.size // _SAMPLE])
        if some is None or _has(some, values):
            return some
    levels = clusters(values)
    if levels is None:
        return None
    top = float(np.abs(levels).max())
    if top == 0:
        return Grid(1.0, 0, 0)
    points = np.union1d(levels, [0.0])
    apart = np.diff(points)
    step = float(apart[apart > 2 * _NEAR * top].min())
    for parts in _PARTS:
        grid = _fit(levels, step / parts, top)
        if grid is not None:
            return grid
    return _of_few(levels, top)


def _of_few(levels: Array, top: float) -> Grid | None:
    """Return the grid of few levels that are far apart, as the 9 weights of 8 bits of a depthwise 3x3 window do.

    With fewer than three levels beside 0, one in 30 pairs of floats would be on a grid by chance.
    """
    if np.count_nonzero(levels) < 3:
        return None
    counts = np.arange(1, _MOST)[:, None]  # of steps to the largest magnitude
    steps = levels * (counts / top)
    fits = (np.abs(steps - np.rint(steps)) <= _NEAR * counts).all(axis=1)
    return _fit(levels, top / (1 + int(fits.argmax())), top) if fits.any() else None


def _has(grid: Grid, values: Array) -> bool:
    """Tell if all values are on a grid, and none beyond its ends."""
    top = max(-grid.low, grid.high) * grid.scale
    slack = _NEAR * top
    if not top or values.min() < grid.low * grid.scale - slack or values.max() > grid.high * grid.scale + slack:
        return False
    wide = values.astype(np.float64)
    return bool(np.abs(wide - np.rint(wide / grid.scale) * grid.scale).max() <= _NEAR * top)


def clusters(values: Array) -> Array | None:
    """Return the different values, those that differ by rounding only as one; None if they are more than 256."""
    flat = np.unique(values.astype(np.float64))
    if not flat.size or not np.isfinite(flat).all():
        return None
    apart = np.diff(flat) > _NEAR * np.abs(flat).max()
    if apart.sum() >= _MOST:
        return None
    return np.asarray(flat[np.concatenate([[True], apart])])


def _fit(levels: Array, step: float, top: float) -> Grid | None:
    if top / step >= 2 * _MOST:
        return None
    for _ in range(2):  # the second time with the scale that fits all levels best
        whole = np.rint(levels / step)
        step = float((levels * whole).sum() / (whole * whole).sum())
    if (whole.max() - whole.min()) / _step(whole) >= _MOST or np.abs(levels - whole * step).max() > _NEAR * top:
        return None
    step = float(np.rint(step)) if abs(step - np.rint(step)) < 1e-7 and np.rint(step) else step
    return Grid(step, int(whole.min()), int(whole.max()))


def _step(whole: Array) -> int:
    """Return the largest step that all differences of integers are multiples of."""
    return int(np.gcd.reduce((whole - whole.min()).astype(np.int64))) or 1


def constant(a: Array, axis: int | None) -> Constant:
    """Return an array as a constant; with integers and a scale, of all or of each index of `axis`, if it has them."""
    if a.dtype.kind != "f" or not a.size:
        return Constant(a)
    grid = grid_of(a)
    if grid is not None:
        return Constant(a, grid.integers(a), np.array(grid.scale))
    if axis is None:
        return Constant(a)
    scales = []
    for row in np.moveaxis(a, axis, 0):
        grid = grid_of(row)
        if grid is None:
            return Constant(a)
        scales.append(grid.scale)
    shape = [1] * a.ndim
    shape[axis] = a.shape[axis]
    scale = np.array(scales).reshape(shape)
    return Constant(a, np.rint(a / scale).astype(np.int64), scale)
