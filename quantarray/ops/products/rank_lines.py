"""Lines that give the rank of a sum among evenly spaced thresholds: a multiplication in the place of a search.

The thresholds of a uniform quantiser on integers are numbers of a line, rounded. The rank of a sum v, the number of
thresholds below it, is then floor(slope * v + shift), clipped to the ranks that its channel has.

Thresholds that were rounded on the way, as those of float32 layers, have no such line if only one is a unit off. Then a
line stays half a rank below, gives the rank or the one before it, and one compare with a threshold tells which.
"""

from __future__ import annotations

import numpy as np

from ...core.dtypes import Array

_SEARCHED = 15  # thresholds up to which a search takes as long
NO_LINES = np.zeros((0, 0))
_FAR = 2.0**35  # sums up to which slope * v in float64 is less than half of _MARGIN * slope from the exact product
_MARGIN = 2.0**-16  # of the slope: how far from an integer a line stays where a rank ends
_SINGLE = 2.0**16  # of slope * v: float32 is then a few 2**-8 of a rank off
_NEAR = 1 / 16  # ranks between a line half a rank below and the ranks that it gives
_ROUNDS = 24  # of a search for slopes; five to eight are enough as a rule


def lines_of(thresholds: Array) -> Array:
    """Return float64 [4, lanes]: slopes, shifts, least and greatest ranks; an empty array where a lane has no line.

    thresholds [T lanes] ascend in T. The least and the greatest integer of their dtype are below and above all sums.
    A fifth row, which is not read, says that ranks may be one less: rank r is r + 1 where v > thresholds[r].

    >>> lines_of(np.arange(-60, 33, 3, dtype=np.int32)[:, None])[0].round(2)
    array([0.33])
    """
    if thresholds.dtype.kind == "f" or len(thresholds) <= _SEARCHED or not thresholds.size:
        return NO_LINES
    ends, rank = np.iinfo(thresholds.dtype), np.arange(1.0, len(thresholds) + 1)[:, None]
    least = (thresholds == ends.min).sum(axis=0)
    most = len(thresholds) - (thresholds == ends.max).sum(axis=0)
    inside = (least < rank) & (rank <= most)
    at = np.where(inside, thresholds, 0).astype(np.float64)
    inside[0] |= least == most  # a lane of one rank has any line
    if np.abs(at).max() > _FAR:
        return NO_LINES
    slope = _slopes(at, rank, inside)
    shift = sum(_shifts(slope, at, rank, inside)) / 2
    value, margin = at * slope + shift, slope * _MARGIN
    ends_right = (value <= rank - margin) & (value + slope >= rank + margin)
    if ends_right[inside].all():
        return np.stack([slope, shift, least, most]).astype(np.float64)
    return _near(thresholds, inside & (least != most), least, most)


def _near(thresholds: Array, inside: Array, least: Array, most: Array) -> Array:
    """Return lines that give the rank or the one before it; an empty array where a lane has none."""
    number, at = np.arange(len(thresholds))[:, None], np.where(inside, thresholds, 0).astype(np.float64)
    first, last = np.minimum(least, len(at) - 1), np.maximum(most - 1, 0)
    lanes = np.arange(at.shape[1])
    gap = at[last, lanes] - at[first, lanes]
    slope = np.where(gap > 0, (last - first) / np.maximum(gap, 1), last - first + 1.0)
    middle = number + 0.5 - (at + 0.5) * slope  # shifts that are half a rank below between a threshold and the next sum
    shift = (np.max(middle, 0, where=inside, initial=-_FAR) + np.min(middle, 0, where=inside, initial=_FAR)) / 2
    changes, end = thresholds[1:] != thresholds[:-1], np.ones((1, len(lanes)), bool)
    before = np.maximum.accumulate(np.where(np.concatenate([end, changes]), number, 0))
    after = np.minimum.accumulate(np.where(np.concatenate([changes, end]), number + 1, len(at))[::-1])[::-1]
    value = at * slope + shift
    ends = (value, before), (value + slope, after)
    right = [(v - _NEAR >= ranks - 1) & (v + _NEAR < ranks + 1) for v, ranks in ends]
    exact = np.abs(at * slope).max() <= _SINGLE  # enough for float32
    if not exact or not (right[0] & right[1])[inside].all():
        return NO_LINES
    return np.stack([slope, shift, np.minimum(least, last), last, np.zeros_like(slope)]).astype(np.float64)


def _shifts(slope: Array, at: Array, rank: Array, inside: Array) -> tuple[Array, Array]:
    """Return the least and the greatest shift for which lines reach each rank after its threshold, and not at it."""
    above = rank - at * slope
    return np.max(above - slope, axis=0, where=inside, initial=-np.inf), np.min(above, 0, where=inside, initial=np.inf)


def _slopes(at: Array, rank: Array, inside: Array) -> Array:
    """Return the slope of each lane that leaves its shift the widest range.

    The range is a concave function of the slope, of straight pieces: each round goes to where the tangents of two
    slopes around the best one meet.
    """
    first, last = inside.argmax(axis=0), len(at) - 1 - inside[::-1].argmax(axis=0)
    lanes = np.arange(at.shape[1])
    gap, count = at[last, lanes] - at[first, lanes], (last - first).astype(np.float64)
    left, right = count / (gap + 1), np.where(gap > 1, count / np.maximum(gap - 1, 1), 4 * count + 4)

    def tangent(slope: Array) -> tuple[Array, Array]:
        above = np.where(inside, rank - at * slope, np.inf)
        below = np.where(inside, above - slope, -np.inf)
        high, low = above.argmin(axis=0), below.argmax(axis=0)
        return above[high, lanes] - below[low, lanes], at[low, lanes] + 1 - at[high, lanes]

    (width, rise), (right_width, right_rise) = tangent(left), tangent(right)
    for _ in range(_ROUNDS):
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = (right_width - width + rise * left - right_rise * right) / (rise - right_rise)
        middle = np.where(rise <= 0, left, np.where(right_rise >= 0, right, np.clip(middle, left, right)))
        middle_width, middle_rise = tangent(middle)
        bound = width + rise * (middle - left)  # a tangent is above all widths
        if (bound < 0).any() or (middle_width > 8 * _MARGIN * middle).all():
            break
        up = middle_rise > 0
        left, width, rise = (np.where(up, *two) for two in ((middle, left), (middle_width, width), (middle_rise, rise)))
        right, right_width, right_rise = (
            np.where(up, *two)
            for two in ((right, middle), (right_width, middle_width), (right_rise, middle_rise))
        )  # fmt: skip
    return np.asarray(middle)
