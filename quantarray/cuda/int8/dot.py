"""Convolution of images of int8 or uint8 as they are, on int8 tensor cores. `docs/kernels/imma.md` has the tile.

The bytes of a window are read in fours. Bytes that lie side by side, such as those of a row of taps, are filled up to
whole fours by bytes that count as outside the image, and the weights by zeros.
"""

import numpy as np

from ..popcount import conv, tiles
from ..popcount.conv import conv_weights
from ..popcount.tiles import Taps
from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..tensor_cores import imma
from ..tensor_cores.byte_rows import FOUR, PART

_NONE = -1
_BITS = 64


def dot_weights(words, groups, out):
    conv_weights(words, groups, out)


def dot(x, fixed, out):
    asked = conv.job(x, fixed, out)
    if asked is not None:
        (shape, terms, last, result), plan, signed = asked, fixed.plan, x.terms[0, 2] < 0
        taps = launch.cached(_taps, (plan.pixels, plan.counts, plan.classes, plan.origin, plan.first_run, plan.runs))
        weights = launch.cached(_in_fours, (fixed.w.words, plan.first_run, plan.runs))
        imma.run_bytes(signed, shape, terms, x.words, weights, taps, last, result)


def _taps(pixels, counts, classes, origin, first_run, runs):
    """Return the plan on the device, with offsets of `Raw`: int32[1 + classes, fours]."""
    offsets, inside, order = _fours(first_run, runs)
    places = tiles.places_of(pixels, counts, classes, origin)
    masks = np.ascontiguousarray(255 * ((order != _NONE) & inside[:, order]), np.uint8).view(np.int32)
    first = order[::FOUR]
    table = np.concatenate([np.where(first != _NONE, offsets[first], 0).astype(np.int32)[None], masks])
    return Taps(launch.resident(places), launch.resident(table), None, False, False)


def _fours(first_run, runs):
    """(offsets[bytes] from where a window begins, inside bool[classes bytes], order): a window's bytes by the weight's.

    order[filled] has the weight's byte at each place of whole fours, or _NONE. An offset is the same in all classes.
    """
    length = int((runs[:, 1] + runs[:, 2]).max(initial=1))
    offsets, inside = np.zeros(length, np.int64), np.zeros((len(first_run) - 1, length), np.bool_)
    for kind in range(len(inside)):
        for at, weight, count in runs[first_run[kind] : first_run[kind + 1]].tolist():
            offsets[weight : weight + count] = np.arange(at, at + count)
            inside[kind, weight : weight + count] = True
    used = np.flatnonzero(inside.any(axis=0))
    begins = np.flatnonzero((np.diff(used, prepend=_NONE - 1) != 1) | (np.diff(offsets[used], prepend=_NONE - 1) != 1))
    lengths = np.diff(begins, append=len(used))
    filled = -(-lengths // FOUR) * FOUR
    shift = np.repeat(filled.cumsum() - filled - begins, lengths)
    order = np.full(-(-max(int(filled.sum()), 1) // PART) * PART, _NONE)
    order[np.arange(len(used)) + shift] = used
    return offsets, inside, order


def _in_fours(weights, first_run, runs):
    """Return words uint64[planes blocks words lanes] in the order of `_fours`, as `byte_rows` expands bits to bytes."""
    order = _fours(first_run, runs)[2]
    words = -(-order.size // _BITS)
    natural = np.full(words * _BITS, _NONE, np.int32)
    natural[: order.size] = order
    bits = natural.reshape(words, 8, 8).transpose(0, 2, 1).reshape(-1)  # byte 8j + i is made of bit 8i + j
    out = launch.scratch((*weights.shape[:2], words, LANES), np.uint64)
    launch.run(_move_bits, *launch.rows_by_items(out[..., 0].size, LANES), weights, launch.resident(bits), out)
    launch.wait()
    return out


@cuda.jit
def _move_bits(weights, bits, out):
    """Make a word a thread; bit i of it is bit bits[i] of the channel's words."""
    lane, row = cuda.grid(2)
    rows, words = out.shape[1] * out.shape[2], out.shape[2]
    while row < out.shape[0] * rows and lane < LANES:
        plane, block, word = row // rows, row // words % out.shape[1], row % words
        word_bits = np.uint64(0)
        for i in range(_BITS):
            of = bits[word * _BITS + i]
            if of != _NONE:
                bit = (weights[plane, block, of // _BITS, lane] >> np.uint64(of % _BITS)) & np.uint64(1)
                word_bits |= bit << np.uint64(i)
        out[plane, block, word, lane] = word_bits
        row += cuda.gridDim.y * cuda.blockDim.y
