"""The last step of every kernel: lanes become values, or are compared with thresholds into bits.

These take the arrays of a `Finish` one by one and no slices: a tuple of arrays is passed as some forty numbers, and a
slice costs two atomic operations, which is more than the work done here.

For the same reason each kernel chooses between them itself: with one function that does, called or inlined by Numba,
reference counts stay that make codes take twice as long.
"""

import numpy as np

from .compiled import inline, inner
from .micro import LANES, STREAMED, mask_above, put_ranks, stream_lanes


@inline
def store_values(lanes, p, start, channel, valid, stride, out, row):
    """out[row, channel + l * stride] = lanes[p, start + l].

    Indices are unsigned: for signed ones Numba checks for negative values, and LLVM then does not vectorise.
    """
    i, j, first, at = np.uint64(p), np.uint64(row), np.uint64(start), np.uint64(channel)
    if stride == 1 and valid == LANES and out.size * out.itemsize >= STREAMED:
        if stream_lanes(lanes, p * lanes.shape[1] + start, out, row * out.shape[1] + channel):
            return
    if stride == 1:
        for lane in range(np.uint64(valid)):
            out[j, at + lane] = lanes[i, first + lane]
    else:
        for lane in range(np.uint64(valid)):
            out[j, at + lane * np.uint64(stride)] = lanes[i, first + lane]


@inline
def store_bits(lanes, p, start, thresholds, flip, at, channel, valid, stride, out, row):
    """32 lanes of lanes[p, start ..] against one threshold each: bits channel + l * stride of a row, `valid` of them.

    One compare is one mask. The thresholds are those at lane `at`, a multiple of 32; `out` is uint64[1 rows words],
    zero on entry.
    """
    mask = mask_above(lanes, p * lanes.shape[1] + start, thresholds, at)
    flips, used = flips_and_lanes(flip, at, valid)
    _put((mask ^ flips) & used, channel, valid, stride, out, 0, row)


@inline
def flips_and_lanes(flip, at, valid):
    """(the flips of 32 lanes, a bit for each of the `valid` ones), for masks that go out by `or_bits`."""
    flips = np.uint64(flip[at // LANES]) if flip.size else np.uint64(0)
    return flips, (np.uint64(1) << np.uint64(valid)) - np.uint64(1)


@inline
def store_codes(lanes, p, start, thresholds, flip, toggles, at, channel, valid, stride, made, out, row):
    """The same against several thresholds each, to every plane of uint64[planes rows words]; `made` is uint64[8].

    The masks of ascending thresholds are nested, so a plane is the exclusive or of the masks at which its bit of the
    code changes (`toggles`, row t + 1; row 0 is code 0). Where a lane counts downwards the changes come in reverse. A
    function of its own, because its loops keep Numba from dropping the reference counts of its arguments, which cost
    the others ten times their work.
    """
    count, first = thresholds.shape[0], p * lanes.shape[1] + start
    down, used = flips_and_lanes(flip, at, valid)
    for plane in range(out.shape[0]):
        made[plane] = toggles[0, plane] & used
    for t in range(count):
        mask = (mask_above(lanes, first, thresholds, t * thresholds.shape[1] + at) ^ down) & used
        for plane in range(out.shape[0]):
            made[plane] ^= mask & ((toggles[t + 1, plane] & ~down) | (toggles[count - t, plane] & down))
    for plane in range(out.shape[0]):
        _put(made[plane], channel, valid, stride, out, plane, row)


@inline
def store_ranks(lanes, p, start, thresholds, flip, at, channel, valid, out, row):
    """`store_codes` where `codes_are_ranks`, to neighbouring bits."""
    first, down = p * lanes.shape[1] + start, np.uint64(flip[at // LANES])
    put_ranks(lanes, first, thresholds, at, down, valid, channel, out, row)


@inner
def codes_are_ranks(thresholds, toggles):
    """True where the code of a lane is how many thresholds it passes, and all codes of some planes are in use."""
    count, planes = thresholds.shape[0], toggles.shape[1]
    if count != (1 << planes) - 1:
        return False
    for t in range(count + 1):
        changes = t ^ (t - 1) if t else 0
        for plane in range(planes):
            if (toggles[t, plane] != 0) != bool((changes >> plane) & 1):
                return False
    return True


@inline
def _put(mask, channel, valid, stride, out, plane, row):
    if stride == 1:
        or_bits(mask, channel, valid, out, plane, row)
        return
    for lane in range(valid):
        or_bits((mask >> np.uint64(lane)) & np.uint64(1), channel + lane * stride, 1, out, plane, row)


@inline
def or_bits(mask, start, length, words, i, j):
    """Write `length` <= 64 bits of a mask at bit `start` of the zeroed words[i, j]."""
    at, shift = np.uint64(start), np.uint64(start) & np.uint64(63)
    plane, row, word = np.uint64(i), np.uint64(j), at >> np.uint64(6)
    words[plane, row, word] |= mask << shift
    if shift + np.uint64(length) > np.uint64(64):
        words[plane, row, word + np.uint64(1)] |= mask >> (np.uint64(64) - shift)
