"""The last step of every kernel: a lane's value is compared with its channel's thresholds, ballots pack the codes."""

import numpy as np

from ..runtime import launch
from ..runtime.launch import inline
from ..runtime.target import cuda
from ..runtime.warp import ballot


def changes(finish):
    """uint32[T + 1] on the device: bit p is set where bit p of the code changes, first from 0 to code 0."""
    return launch.resident(launch.cached(_changes, (finish.toggles,)))


def _changes(toggles):
    """toggles uint64[T + 1 planes], all ones or none, as one number a row."""
    return ((toggles & np.uint64(1)) << np.arange(toggles.shape[1], dtype=np.uint64)).sum(axis=1).astype(np.uint32)


@inline
def code_of(value, thresholds, flip, changed, lane):
    """Return the code of a value, int64 or float64, of the channel at a lane: thresholds[T lanes], flip a bit a lane.

    A threshold NaN is below all values. Where a lane counts downwards the changes come in reverse.
    """
    count = thresholds.shape[0]
    down = ((flip[lane >> 5] >> np.uint32(lane & 31)) & np.uint32(1)) != 0
    code = changed[0]
    for t in range(count):
        above = not (value <= thresholds[t, lane])
        if above != down:
            code ^= changed[count - t if down else t + 1]
    return code


@inline
def put_bits(bits, channel, alone, out, plane, row):
    """Put 32 bits at bit `channel` of the zeroed uint32 out[plane, row].

    Where `alone` is set, no other warp writes to that half-word and channel is a multiple of 32; groups of other sizes
    share half-words.
    """
    half, shift = channel >> 5, np.uint32(channel & 31)
    if alone:
        out[plane, row, half] = bits
    else:
        _share_bits(bits, half, shift, out, plane, row)


@inline
def _share_bits(bits, half, shift, out, plane, row):
    cuda.atomic.or_(out, (plane, row, half), np.uint32((bits << shift) & np.uint32(0xFFFFFFFF)))
    rest = (bits >> np.uint32(1)) >> (np.uint32(31) - shift)
    if rest != 0:
        cuda.atomic.or_(out, (plane, row, half + 1), np.uint32(rest))


@inline
def store_codes(value, valid, thresholds, flip, changed, lane, channel, alone, out, row):
    """Store the codes of a warp's values as bits from `channel` on of a row of uint32 out[planes rows halves].

    `valid` says whether this lane has a channel, `lane` is where its thresholds are.
    """
    code = code_of(value, thresholds, flip, changed, lane) if valid else np.uint32(0)
    first = cuda.threadIdx.x == 0
    for plane in range(out.shape[0]):
        bits = ballot((code >> np.uint32(plane)) & np.uint32(1))
        if first:
            put_bits(bits, channel, alone, out, plane, row)


@inline
def store_values(value, valid, thresholds, flip, changed, lane, channel, alone, out, row):
    """Store the values themselves, where no thresholds are asked for, to out[rows channels]."""
    if valid:
        out[row, channel + cuda.threadIdx.x] = value
