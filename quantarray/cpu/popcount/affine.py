"""Constants that turn counts into sums, and thresholds on sums as limits on the counts themselves."""

from typing import NamedTuple

import numpy as np

from ...core.format import empty_lines
from ..runtime.jit import entry, inline, inner
from .half_words import sums_of_halves
from .tiles import IN_REGISTERS

_LIMIT = np.dtype(np.int32 if IN_REGISTERS else np.uint16)
_FAR = 2.0**61  # of what is fixed, so that thresholds within +-2**62 less that are int64


@entry
def differing(w_terms):
    """True where the values of w are plus or minus a number: then u*v depends on where bits of x and w differ."""
    return w_terms[0, 1] == 1 and 2 * w_terms[0, 2] + w_terms[0, 3] == 0


class Added(NamedTuple):
    """sum = fixed[kind, lane] + along * |a| + step * sum_ij 2^(i+j) |a_j & b_i|

    or, where `differ` is -1 and not 0, fixed - (step_x * step_w / 2) * sum_j 2^j |a_j ^ b|. Counts that stay
    IN_REGISTERS leave out a part that only depends on w (`half_words.py`), which `fixed` then includes.
    """

    fixed: np.ndarray  # of the type that results are summed in
    along: int
    step: int
    differ: int


def as_counts(x, fixed):
    """Compute (Added, limits on counts [kinds lanes]) of a product once, and keep them on `fixed`.

    With one threshold a lane and a step that is plus or minus a power of two, a bit of a result is count > limit, or
    its complement for a negative step. Limits are int32 where counts stay IN_REGISTERS, or else uint16, the first
    count above. There are none otherwise, nor where int64 could not hold them: `Added.fixed` may be right modulo 2**64
    only, and a limit must be right itself.
    """
    if "added" not in fixed.cache:
        w, finish = fixed.w, fixed.finish
        step, along, differ = map(int, _factors(x.terms, w.terms))
        halves = sums_of_halves(fixed, differing(w.terms))
        table = empty_lines(finish.extra.shape, finish.extra.dtype)
        wraps = abs(int(x.terms[0, 3]) * int(w.terms[0, 3])) >= 2**62
        limited = len(finish.thresholds) == 1 and is_power.py_func(abs(step)) and not wraps
        limits = empty_lines(finish.extra.shape if limited else (0, 0), _LIMIT)
        exact = _fill(finish, x.terms, w, halves, step, differ, table, limits)
        fixed.cache["added"] = Added(table, along, step, differ), limits if exact else limits[:0, :0]
    return fixed.cache["added"]


@entry
def _factors(x_terms, w_terms):
    """Return (step, along, differ) of an `Added`; w's step is halved first, as the product of two of 2**32 wraps."""
    step, other = x_terms[0, 3], w_terms[0, 3]
    return (-(step * (other // 2)), 0, -1) if differing(w_terms) else (step * other, step * w_terms[0, 2], 0)


@entry
def _fill(finish, x_terms, w, halves, step, differ, fixed, limits):
    """fixed[kind, lane] = finish.extra + the part of sums that depends on w alone; fill limits too, if there are any.

    As |a_j & b| is (|a_j| + |b| - |a_j ^ b|) / 2, |a| cancels; |b| comes in here, from the sums base_w * inside +
    step_w * |b|. An extra may be that of a code that x's levels do not have. False where int64 may have wrapped.
    """
    extra, thresholds, sums, inside, w_terms = finish.extra, finish.thresholds, w.sums, w.inside, w.terms
    most = (1 << x_terms[0, 1]) - 1
    times, exact = x_terms[0, 3] * most if differ else 0, True
    for kind in range(extra.shape[0]):
        base = w_terms[0, 2] * inside[kind]
        for lane in range(extra.shape[1]):
            ones = (sums[kind, 0, lane] - base) // 2
            total, far = np.int64(extra[kind, lane]) + times * ones, abs(float(extra[kind, lane]))
            far += abs(float(times) * ones)
            if IN_REGISTERS:
                total += step * most * halves[kind, 0, lane]
                far += abs(float(step) * most * halves[kind, 0, lane])
            fixed[kind, lane], exact = total, exact and far < _FAR
            if limits.size:
                threshold = max(-(1 << 62), min(np.int64(thresholds[0, lane]), 1 << 62))
                limit = _limit(threshold - total, step)
                limits[kind, lane] = _narrowed(limit) if IN_REGISTERS else least_above(limit)
    return exact


@inline
def inverted(added):
    """Return ~0 if the comparison is inverted (step < 0), else 0."""
    return np.uint64(-(added.step < 0))


@inner
def is_power(number):
    """True for powers of two."""
    return number > 0 and number & (number - 1) == 0


@inner
def _limit(room, step):
    """Return the limit with step * c > room where c > limit, or c <= limit for a negative step.

    Steps are plus or minus a power of two.
    """
    shift = np.int64(0)
    while abs(step) >> (shift + 1):
        shift += 1
    return (room >> shift) ^ -(step < 0)


@inner
def _narrowed(limit):
    """Clip a limit to int32: every count is above the least int32, and none above the greatest."""
    return max(-(1 << 31), min(limit, (1 << 31) - 1))


@inner
def least_above(limit):
    """Return the first count of 16 bits that is above a limit; counts are below 65535."""
    return max(-1, min(limit, 65534)) + 1
