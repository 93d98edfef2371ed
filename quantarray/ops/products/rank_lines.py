"""Lines that give the rank of a sum among evenly spaced thresholds: a multiplication in the place of a search.

The thresholds of a uniform quantiser on integers are numbers of a line, rounded. The rank of a sum v, the number of
thresholds below it, is then floor(slope * v + shift), clipped to the ranks that its channel has.

Thresholds that were rounded on the way, as those of float32 layers, have no such line if only one is a unit off. Then a
line stays half a rank below, gives the rank or the one before it, and one compare with a threshold tells which.
"""

from __future__ import annotations

import numpy as np

from ...core.dtypes import Array

_SEARCHED = 6  # thresholds up to which a search takes as long
_BISECTED = 15  # those up to which it takes no longer than a line that is corrected
NO_LINES = np.zeros((0, 0))
SURE = 1.0  # in the fifth row of lines that need no correction: no fraction is as far from a half
_FAR = 2.0**35  # sums up to which slope * v in float64 is less than half of _MARGIN * slope from the exact product
_MARGIN = 2.0**-16  # of the slope: how far from an integer a line stays where a rank ends
_SINGLE = 2.0**16  # of slope * v: float32 is then a few 2**-8 of a rank off
_LONE = 2.0**12  # of slope * v at a threshold that is alone in its lane
_NEAR = 1 / 16  # ranks between a line half a rank below and the ranks that it gives
_SPARE = 2.0**-16  # of a rank, for the rounding of that distance to float32
_FLAT = 1 - 2.0**-4  # ranks that a unit of a sum is at most, if no int32 may have a greater rank
_ROUNDING = 2.0**-22  # of a product and a rank: what z in float32 differs by with one rounding or two
_ROUNDS = 24  # of a search for slopes; five to eight are enough as a rule


def lines_of(thresholds: Array) -> Array:
    """Return float64 [4, lanes]: slopes, shifts, least and greatest ranks; an empty array where a lane has no line.

    thresholds [T lanes] ascend in T. The least and the greatest integer of their dtype are below and above all sums.
    With a fifth row, ranks may be one less: rank r is r + 1 where v > thresholds[r]. In float32 half a rank higher,

        z = clip(f(v) * f(slope) + (f(shift) + 1/2), least + 1/2, most + 5/4)

    they are right, trunc(z), where the fraction of z is not farther from 1/2 than the fifth row's number: everywhere,
    if that is SURE. Exact lines of int32 have five such rows after their four, if all lanes have them. Up to 15
    thresholds have lines of five rows that are SURE, or none.

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
    single, few = thresholds.dtype == np.int32, len(thresholds) <= _BISECTED
    if np.abs(at).max() > _FAR or (few and not single):
        return NO_LINES
    slope = _slopes(at, rank, inside)
    shift = sum(_shifts(slope, at, rank, inside)) / 2
    value, margin = at * slope + shift, slope * _MARGIN
    exact = ((value <= rank - margin) & (value + slope >= rank + margin))[inside].all()
    near = _sure(slope, at, rank, thresholds, inside, least, most) if single else NO_LINES
    if few:
        return near
    if not near.size and (single or not exact):
        near = _near(thresholds, inside & (least != most), least, most, slope)
    if not exact:
        return near
    lines = np.stack([slope, shift, least, most]).astype(np.float64)
    return np.concatenate([lines, near]) if near.size else lines


def _sure(slope: Array, at: Array, rank: Array, thresholds: Array, inside: Array, least: Array, most: Array) -> Array:
    """Return lines whose ranks in float32 are right everywhere; an empty array where a lane has none.

    They are so with a product that is rounded and with one that is not: kernels compute z by one instruction or two.
    They are clipped as integers: z of any sum has to be an int32.
    """
    flat = np.minimum(slope, _FLAT)  # a line of one threshold may rise as slowly as is wanted
    shift = np.add(*_shifts(flat, at, rank, inside)) / 2 - 0.5
    inside = inside & (least != most)
    flat, shift = _with_alone(flat, shift, inside, most)
    off = np.maximum(*_off_in_single(flat, shift, thresholds, _ranks_around(thresholds)))
    rounding = (np.abs(at) * flat + len(at) + 1) * _ROUNDING
    if (off > -rounding)[inside].any() or (np.abs(shift) > 2.0**24).any():
        return NO_LINES
    last = np.maximum(most - 1, 0)
    sure = np.full(len(slope), SURE)
    return np.stack([flat, shift, np.minimum(least, last), last, sure]).astype(np.float64)


def _with_alone(slope: Array, shift: Array, inside: Array, most: Array) -> tuple[Array, Array]:
    """Return slopes and shifts; a lane with one rank has a level line at it."""
    alone = ~inside.any(axis=0)
    return np.where(alone, 0, slope), np.where(alone, most, shift)


def _ranks_around(thresholds: Array) -> tuple[Array, Array]:
    """Return the ranks of each threshold and of the integer after it."""
    number = np.arange(len(thresholds))[:, None]
    changes, end = thresholds[1:] != thresholds[:-1], np.ones((1, thresholds.shape[1]), bool)
    before = np.maximum.accumulate(np.where(np.concatenate([end, changes]), number, 0))
    after = np.where(np.concatenate([changes, end]), number + 1, len(thresholds))
    return before, np.minimum.accumulate(after[::-1])[::-1]


def _near(thresholds: Array, inside: Array, least: Array, most: Array, fitted: Array) -> Array:
    """Return lines that give the rank or the one before it; an empty array where a lane has none.

    Slopes are those from the first threshold to the last, or `fitted` ones where fewer ranks are unsure by them: of
    layers that PyTorch quantised, 0.005 % of all sums instead of 0.07.
    """
    number, at = np.arange(len(thresholds))[:, None], np.where(inside, thresholds, 0).astype(np.float64)
    first, last = np.minimum(least, len(at) - 1), np.maximum(most - 1, 0)
    lanes = np.arange(at.shape[1])
    gap = at[last, lanes] - at[first, lanes]
    slope = np.where(gap > 0, (last - first) / np.maximum(gap, 1), last - first + 1.0)
    lone = np.abs(at[first, lanes]) > _LONE  # a line of one threshold may rise as slowly as float32 needs
    slope = np.where((first == last) & lone, _LONE / np.maximum(np.abs(at[first, lanes]), 1), slope)
    before, after = _ranks_around(thresholds)

    def shift_and_off(slope: Array) -> tuple[Array, Array]:
        """Return shifts that are half a rank below between thresholds and next sums, and how far lines are off."""
        middle = number + 0.5 - (at + 0.5) * slope
        shift = (np.max(middle, 0, where=inside, initial=-_FAR) + np.min(middle, 0, where=inside, initial=_FAR)) / 2
        off = np.maximum(*_off_in_single(slope, shift, thresholds, (before, after)))
        return shift, np.max(off, axis=0, where=inside, initial=0)

    (shift, off), (other, less) = shift_and_off(slope), shift_and_off(fitted)
    better = (less < off) & (first < last)
    slope, shift = np.where(better, fitted, slope), np.where(better, other, shift)
    value = at * slope + shift
    ends = (value, before), (value + slope, after)
    right = [(v - _NEAR >= ranks - 1) & (v + _NEAR < ranks + 1) for v, ranks in ends]
    exact = np.abs(at * slope).max() <= _SINGLE  # enough for float32
    if not exact or not (right[0] & right[1])[inside].all():
        return NO_LINES
    slope, shift = _with_alone(slope, shift, inside, most)
    off = np.maximum(*_off_in_single(slope, shift, thresholds, (before, after)))
    single = 0.5 - _SPARE - np.max(off, axis=0, where=inside, initial=0)
    return np.stack([slope, shift, np.minimum(least, last), last, single]).astype(np.float64)


def _off_in_single(slope: Array, shift: Array, thresholds: Array, ranks: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return how far z is over the rank after a threshold's, and under the rank of the integer after it.

    z is computed in float32 as kernels do, with two roundings, and with one to at most 2**-29 of it; the worse of both
    is returned. It rises with v, so between these integers it is off by no more.
    """
    s, h, t = slope.astype(np.float32), shift.astype(np.float32) + np.float32(0.5), thresholds.astype(np.int64)
    (at, once_at), (after, once_after) = (
        ((x * s + h).astype(np.float64), (x.astype(np.float64) * s + h).astype(np.float32).astype(np.float64))
        for x in (v.astype(np.float32) for v in (t, t + 1))
    )
    return np.maximum(at, once_at) - (ranks[0] + 1), ranks[1] - np.minimum(after, once_after)


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
        if (bound < 0).any() or (middle_width > np.maximum(8 * _MARGIN * middle, bound / 2)).all():
            break  # at half of the widest range: float32 needs more than float64
        up = middle_rise > 0
        left, width, rise = (np.where(up, *two) for two in ((middle, left), (middle_width, width), (middle_rise, rise)))
        right, right_width, right_rise = (
            np.where(up, *two)
            for two in ((right, middle), (right_width, middle_width), (right_rise, middle_rise))
        )  # fmt: skip
    return np.asarray(middle)
