"""Evenly spaced levels of least squared error: a scale for given levels, or a step and an offset."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array
from .rows import SortedRows

TRIES = 64  # scales, twice over
_EVEN = np.linspace(0, 1, TRIES)


def least_squares_scale(magnitudes: Array, levels: Array) -> Array:
    """Find the scale s of each row [channels n] with the least sum over x of (x - s * q)**2, q the nearest of `levels`.

    The error has many local minima, so TRIES scales are tried from the mean to the largest of the row at the top level
    to the largest at level 1 (below the mean no scale is the best for its own codes), then as many around the best of
    them. Each try goes on to the scale that is best for its codes, until no code changes. On sorted rows a try costs
    O(levels log n). The result is no worse than the scale that has the largest value as its top level; a row of one
    magnitude gets a scale that reaches it exactly, unless others of its levels would be beyond float32.
    """
    peak = magnitudes.max(axis=1)
    unit = SortedRows(magnitudes / np.where(peak == 0, 1, peak)[:, None])
    top = int(levels[-1])
    low = np.where(peak == 0, 1, unit.sums[:, -1] / magnitudes.shape[1]) / top
    span = -np.log(low)
    coarse = _best_of(unit, levels, [np.full(len(low), 1 / top), *(low * np.exp(span * t) for t in _EVEN)])
    fine = [coarse, *(coarse * np.exp(span * (2 * t - 1) / TRIES) for t in _EVEN)]
    best = _best_of(unit, levels, fine)
    for _ in range(TRIES):
        before, (_, best) = best, _refit(unit, levels, best)
        if (best == before).all():
            break
    even = unit.values[:, 0] == unit.values[:, -1]
    most = np.maximum(2.0**127 / top, peak / top)
    return np.asarray(np.minimum(peak * np.where(even, 1, best), most))


def _best_of(unit: SortedRows, levels: Array, tries: list[Array]) -> Array:
    best, least = tries[0], np.full(len(tries[0]), np.inf)
    for scale in tries:
        error, _ = _refit(unit, levels, scale)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    return best


def _refit(unit: SortedRows, levels: Array, scale: Array) -> tuple[Array, Array]:
    """Return the best scale of each row for the codes of `scale`, and its squared error less sum x**2."""
    middle = (levels[1:] + levels[:-1]) / 2
    n = unit.values.shape[1]
    first = unit.below(scale[:, None] * middle)  # values from here on are at the next level
    above = unit.sums[:, -1:] - np.take_along_axis(unit.sums, first, axis=1)
    cross = levels[0] * unit.sums[:, -1] + (above * np.diff(levels)).sum(axis=1)
    square = levels[0] ** 2 * n + ((n - first) * np.diff(levels**2)).sum(axis=1)
    refit = np.where(cross > 0, cross / np.maximum(square, 1), scale)
    return np.where(cross > 0, -cross * refit, 0.0), refit


def least_squares_grid(rows: Array, count: int) -> tuple[Array, Array]:
    """(step, offset) of each row [channels n] with a small sum of (x - offset - step * code)**2, 0 <= code < count.

    Codes become those of the nearest levels, levels the straight line of least squares through their codes' values,
    until the error falls no more. It starts from the scale that `least_squares_scale` finds for the row less its
    mean, and from nine grids whose ends leave out nothing, 1/(2 * count) or 1/count of the values on either side; the
    best result counts, so the error is never above that of a start. With two ends that are the extremes and no other
    start, an image ended half above this. A row of one value gets that value as its offset, with the step 1.

    >>> step, offset = least_squares_grid(np.array([[5.0, 5, 6, 7, 8], [3, 3, 3, 3, 3]]), 4)
    >>> step.round(6).tolist(), offset.round(6).tolist()
    ([1.0, 1.0], [5.0, 3.0])
    """
    peak = np.abs(rows).max(axis=1)
    unit = rows / np.where(peak == 0, 1, peak)[:, None]
    middle = unit.mean(axis=1)
    data = SortedRows(unit - middle[:, None])
    inner = rows.shape[1] // (2 * count)
    tails = 0, inner, 2 * inner
    ends = [(data.values[:, i], data.values[:, -1 - j]) for i in tails for j in tails]
    even = rows.max(axis=1) == rows.min(axis=1)
    half = least_squares_scale(np.abs(data.values), np.arange(1.0, count, 2))
    best_step, best_offset, least = np.ones(len(rows)), np.zeros(len(rows)), np.full(len(rows), np.inf)
    starts = [(2 * half, -half * (count - 1)), *(((high - low) / (count - 1), low) for low, high in ends)]
    for start, low in starts:
        step, offset, error = _descended(data, np.where(even | (start <= 0), 1, start), low, count)
        better = error < least
        best_step, best_offset = np.where(better, step, best_step), np.where(better, offset, best_offset)
        least = np.minimum(error, least)
    step, offset = peak * best_step, peak * (best_offset + middle)
    return np.where(even, 1, step), np.where(even, rows[:, 0], offset)


def _descended(data: SortedRows, step: Array, offset: Array, count: int) -> tuple[Array, Array, Array]:
    """Descend from a grid for each row; return step, offset, and the squared error less sum x**2."""
    codes, n = np.arange(1, count), data.values.shape[1]
    error = np.full(len(step), np.inf)
    for _ in range(TRIES):
        above = n - data.below(offset[:, None] + step[:, None] * (codes - 0.5))  # values of at least each code
        total = data.sums[:, -1]
        c, cc = above.sum(axis=1), (above * (2 * codes - 1)).sum(axis=1)
        cx = (total[:, None] - np.take_along_axis(data.sums, n - above, axis=1)).sum(axis=1)
        spread = cc - c * c / n
        slope = np.where(spread > 0, (cx - c * total / n) / np.where(spread > 0, spread, 1), step)
        start = (total - slope * c) / n
        left = slope**2 * cc + 2 * slope * start * c + n * start**2 - 2 * slope * cx - 2 * start * total
        better = left < error
        if not better.any():
            break
        step, offset = np.where(better, slope, step), np.where(better, start, offset)
        error = np.where(better, left, error)
    return step, offset, error
