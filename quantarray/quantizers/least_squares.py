"""Evenly spaced levels of least squared error: a scale for given levels, or a step and an offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from ..core.dtypes import Array
from .rows import SortedRows, on_device_of, row_ends, row_means

TRIES = 64  # scales, twice over
_EVEN = np.linspace(0, 1, TRIES)
_AT_ONCE = 1 << 14  # thresholds that are looked up in one call: a GPU waits for each
T = TypeVar("T")


def least_squares_scale(magnitudes: Array, levels: Array) -> Array:
    """Find the scale s of each row [channels n] with the least sum over x of (x - s * q)**2, q the nearest of `levels`.

    The error has many local minima, so TRIES scales are tried from the mean to the largest of the row at the top level
    to the largest at level 1 (below the mean no scale is the best for its own codes), then as many around the best of
    them. Each try goes on to the scale that is best for its codes, until no code changes. On sorted rows a try costs
    O(levels log n). The result is no worse than the scale that has the largest value as its top level; a row of one
    magnitude gets a scale that reaches it exactly, unless others of its levels would be beyond float32.
    """
    _, peak = row_ends(magnitudes)
    unit = SortedRows(magnitudes / on_device_of(magnitudes, np.where(peak == 0, 1, peak)[:, None]))
    top = int(levels[-1])
    low = np.where(peak == 0, 1, unit.total / unit.length) / top
    span = -np.log(low)
    coarse = _best_of(unit, levels, [np.full(len(low), 1 / top), *(low * np.exp(span * t) for t in _EVEN)])
    fine = [coarse, *(coarse * np.exp(span * (2 * t - 1) / TRIES) for t in _EVEN)]
    best = _best_of(unit, levels, fine)
    for _ in range(TRIES):
        before, (_, best) = best, _refit(unit, levels, best, np.arange(len(best)))
        if (best == before).all():
            break
    least, largest = unit.ends
    even = least == largest
    most = np.maximum(2.0**127 / top, peak / top)
    return np.asarray(np.minimum(peak * np.where(even, 1, best), most))


def _best_of(unit: SortedRows, levels: Array, tries: list[Array]) -> Array:
    best, least = tries[0], np.full(len(tries[0]), np.inf)
    for some, rows in _together(tries, len(levels)):
        error, _ = _refit(unit, levels, np.concatenate(some), rows)
        for scale, at in zip(some, error.reshape(len(some), -1), strict=True):
            best, least = np.where(at < least, scale, best), np.minimum(at, least)
    return best


def _together(tries: list[T], levels: int) -> Iterator[tuple[list[T], Array]]:
    """Yield as many tries of every row as are computed at once, and the number of the row of each."""
    first: Any = tries[0]
    channels = len(first[0] if isinstance(first, tuple) else first)
    most = max(1, _AT_ONCE // max(1, channels * levels))
    for i in range(0, len(tries), most):
        some = tries[i : i + most]
        yield some, np.tile(np.arange(channels), len(some))


def _refit(unit: SortedRows, levels: Array, scale: Array, rows: Array) -> tuple[Array, Array]:
    """Return the best scale of each of the `rows` for the codes of `scale`, and its squared error less sum x**2."""
    middle = (levels[1:] + levels[:-1]) / 2
    n, total = unit.length, unit.total[rows]
    first = unit.below(scale[:, None] * middle, rows)  # values from here on are at the next level
    above = total[:, None] - first.totals
    cross = levels[0] * total + (above * np.diff(levels)).sum(axis=1)
    square = levels[0] ** 2 * n + ((n - first.counts) * np.diff(levels**2)).sum(axis=1)
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
    smallest, largest = row_ends(rows)
    peak, even = np.maximum(-smallest, largest), smallest == largest
    unit = rows / on_device_of(rows, np.where(peak == 0, 1, peak)[:, None])
    middle = row_means(unit)
    data = SortedRows(unit - on_device_of(rows, middle[:, None]))
    inner = data.length // (2 * count)
    tails = 0, inner, 2 * inner
    ends = [(data.column(i), data.column(-1 - j)) for i in tails for j in tails]
    half = least_squares_scale(np.abs(data.values), np.arange(1.0, count, 2))
    best_step, best_offset, least = np.ones(len(rows)), np.zeros(len(rows)), np.full(len(rows), np.inf)
    starts = [(2 * half, -half * (count - 1)), *(((high - low) / (count - 1), low) for low, high in ends)]
    for some, numbers in _together(starts, count):
        step, offset = (np.concatenate(a) for a in zip(*some, strict=True))
        ends_of = _descended(data, np.where(even[numbers] | (step <= 0), 1, step), offset, numbers, count)
        for step, offset, error in zip(*(a.reshape(len(some), -1) for a in ends_of), strict=True):
            better = error < least
            best_step, best_offset = np.where(better, step, best_step), np.where(better, offset, best_offset)
            least = np.minimum(error, least)
    step, offset = peak * best_step, peak * (best_offset + middle)
    return np.where(even, 1, step), np.where(even, smallest, offset)


def _descended(data: SortedRows, step: Array, offset: Array, rows: Array, count: int) -> tuple[Array, Array, Array]:
    """Descend from a grid for each of the `rows`; return step, offset, and the squared error less sum x**2."""
    codes, n, total = np.arange(1, count), data.length, data.total[rows]
    error = np.full(len(step), np.inf)
    for _ in range(TRIES):
        below = data.below(offset[:, None] + step[:, None] * (codes - 0.5), rows)
        above = n - below.counts  # values of at least each code
        c, cc = above.sum(axis=1), (above * (2 * codes - 1)).sum(axis=1)
        cx = (total[:, None] - below.totals).sum(axis=1)
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
