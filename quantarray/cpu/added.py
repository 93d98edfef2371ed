"""What is added to counts to make them sums, and thresholds on sums as limits on the counts themselves."""

from typing import NamedTuple

import numpy as np

from .compiled import entry, inline, inner
from .lines import empty_lines
from .micro import LANES
from .tiles import IN_REGISTERS


@entry
def differing(w_terms):
    """True where the values of w are +-a number: u*v then is a matter of where bits of x's planes and w differ."""
    return w_terms[0, 1] == 1 and 2 * w_terms[0, 2] + w_terms[0, 3] == 0


class Added(NamedTuple):
    """A sum is fixed[kind, lane] + along * |a| + step * sum_ij 2^(i+j) |a_j & b_i|.

    Or where `differ` is -1 and not 0, fixed - (step_x * step_w / 2) * sum_j 2^j |a_j ^ b|.
    """

    fixed: np.ndarray  # of the type that results are summed in
    along: int
    step: int
    differ: int


@inner
def as_counts(extra, x_terms, w_terms):
    """What is added to counts; where bits of x and w differ `fill_added` has to fill it in."""
    step, along = x_terms[0, 3] * w_terms[0, 3], x_terms[0, 3] * w_terms[0, 2]
    if differing(w_terms):
        return Added(np.empty_like(extra), 0, -(step // 2), -1)
    return Added(extra, along, step, 0)


class Limits(NamedTuple):
    """Thresholds on counts themselves, [kinds lanes], of no elements where there are none: a bit of a result is whether
    a count is above its limit, or with `turned` is not."""

    counts: np.ndarray  # int64
    least: np.ndarray  # uint16, where counts are: the first that is above
    turned: int  # all ones or none


@inner
def empty_limits(like, step):
    """Of no elements where `like` has none."""
    least = np.empty((0, 0), np.uint16) if IN_REGISTERS else empty_table(like, np.uint16)
    return Limits(empty_table(like, np.int64), least, np.uint64(-(step < 0)))


@inline
def fill_added(x, w, finish, lanes, added, limits):
    """What is added to counts of lanes first .. last, or what is compared with them."""
    if limits.counts.size:
        fill_fixed(finish.extra, x.terms, w.terms, w.sums, w.inside, added.differ, lanes, limits.counts)
        turn_to_limits(finish.thresholds, added.step, lanes, limits.counts)
        if not IN_REGISTERS:
            fill_least(limits.counts, lanes, limits.least)
    elif added.differ:
        fill_fixed(finish.extra, x.terms, w.terms, w.sums, w.inside, added.differ, lanes, added.fixed)


@inner
def fill_fixed(extra, x_terms, w_terms, sums, inside, differ, lanes, fixed):
    """fixed[kind, lane] of lanes first .. last: `extra`, and for differing bits what they add to it.

    As |a_j & b| is (|a_j| + |b| - |a_j ^ b|) / 2, |a| cancels; |b| comes in here, from the sums base_w * inside +
    step_w * |b|. In int64 nothing wraps.
    """
    times = x_terms[0, 3] * ((1 << x_terms[0, 1]) - 1) if differ else 0
    for kind in range(extra.shape[0]):
        base = w_terms[0, 2] * inside[kind]
        for lane in range(np.uint64(lanes[0]), np.uint64(lanes[1])):
            fixed[kind, lane] = extra[kind, lane] + times * ((sums[kind, 0, lane] - base) // 2)


@inner
def is_power(number):
    """True for powers of two."""
    return number > 0 and number & (number - 1) == 0


@inner
def turn_to_limits(thresholds, step, lanes, limits):
    """int64 limits[kind, lane] of lanes first .. last from what is fixed, which they held before.

    fixed + step * c > threshold where the count c > limit, or for a negative step is not. The step is a power of two,
    or minus one.
    """
    turned, shift = -(step < 0), np.int64(0)
    while abs(step) >> (shift + 1):
        shift += 1
    for kind in range(limits.shape[0]):
        for lane in range(np.uint64(lanes[0]), np.uint64(lanes[1])):
            limits[kind, lane] = ((np.int64(thresholds[0, lane]) - limits[kind, lane]) >> shift) ^ turned


@inner
def fill_least(limits, lanes, least):
    """uint16 least[kind, lane]: the count c > limit where c >= this, for counts of 16 bits below the last."""
    for kind in range(limits.shape[0]):
        for lane in range(np.uint64(lanes[0]), np.uint64(lanes[1])):
            least[kind, lane] = max(-1, min(limits[kind, lane], 65534)) + 1


@inner
def empty_table(like, dtype):
    """A table of so many lanes, of a dtype, for some kinds; from a cache line on."""
    return empty_lines(like.size // LANES, dtype).reshape(like.shape)
