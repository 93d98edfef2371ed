"""Selection of the nearest rows of a query among its candidates, in order: a block for each query.

A candidate is a distance with a row's index in the bits below, so no two are equal and their order is the one that is
asked for. Where a query had more candidates than there was room for, the block searches all rows again: it keeps what
is nearer than the last of those that it has, and drops the others whenever the room is full.
"""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda

_DIGIT = 8  # bits
_DIGITS = 1 << _DIGIT
_WARPS = 16  # of a block
_FAR = np.iinfo(np.int64).max


def settle(words, queries, near, candidates, first, out):
    """out[:, first + q] = the nearest candidates of query q."""
    bits = near.row_bits + (64 * words.shape[1]).bit_length()
    top = (bits - 1) // _DIGIT * _DIGIT
    threads = min(_WARPS, 2 * launch.WARPS) * LANES
    launch.run(_settle, len(queries), threads, words, queries, near, candidates, top, first, out)


@inline
def _last_near(keys, count, wanted, top, digits, state):
    """Return the wanted-th smallest of `count` keys int64[], found digit by digit from bit `top` down; all if fewer."""
    thread, threads, chosen, left = cuda.threadIdx.x, cuda.blockDim.x, np.int64(0), wanted
    shift = top if count > wanted else -1
    while shift >= 0:
        digit = thread
        while digit < _DIGITS:
            digits[digit] = 0
            digit += threads
        cuda.syncthreads()
        i = thread
        while i < count:
            if keys[i] >> (shift + _DIGIT) == chosen:
                cuda.atomic.add(digits, (keys[i] >> shift) & (_DIGITS - 1), 1)
            i += threads
        cuda.syncthreads()
        digit = thread
        while digit < _DIGITS:
            below = 0
            for d in range(digit):
                below += digits[d]
            if below < left <= below + digits[digit]:
                state[0], state[1] = digit, left - below
            digit += threads
        cuda.syncthreads()
        chosen, left = (chosen << _DIGIT) | state[0], state[1]
        cuda.syncthreads()
        shift -= _DIGIT
    return chosen if count > wanted else _FAR


@inline
def _keep(keys, count, last, state):
    """Move the keys up to `last` to the front, in any order, and return how many there are."""
    thread, threads, start = cuda.threadIdx.x, cuda.blockDim.x, 0
    if thread == 0:
        state[0] = 0
    cuda.syncthreads()
    while start < count:  # what is written has been read: no more keys stay than have been looked at
        key = keys[start + thread] if start + thread < count else _FAR
        stays = start + thread < count and key <= last
        cuda.syncthreads()
        if stays:
            keys[cuda.atomic.add(state, 0, 1)] = key
        start += threads
    cuda.syncthreads()
    left = state[0]
    cuda.syncthreads()
    return left


@inline
def _search_again(words, query, keys, wanted, row_bits, top, digits, state):
    """Collect at least the `wanted` nearest of all rows in keys, and return how many there are."""
    thread, threads, start, count, last = cuda.threadIdx.x, cuda.blockDim.x, 0, np.int64(0), np.int64(_FAR)
    while start < words.shape[0]:
        if count + threads > keys.shape[0]:
            last = _last_near(keys, count, wanted, top, digits, state)
            count = _keep(keys, count, last, state)
        if thread == 0:
            state[0] = count
        cuda.syncthreads()
        row = start + thread
        if row < words.shape[0]:
            distance = np.int64(0)
            for k in range(words.shape[1]):
                distance += cuda.popc(words[row, k] ^ query[k])
            key = (distance << row_bits) | row
            if key < last:
                keys[cuda.atomic.add(state, 0, 1)] = key
        cuda.syncthreads()
        count = state[0]
        cuda.syncthreads()
        start += threads
    return count


@cuda.jit
def _settle(words, queries, near, candidates, top, first, out):
    digits = cuda.shared.array(_DIGITS, np.int32)
    state = cuda.shared.array(2, np.int64)
    thread, threads, q = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    keys, most, row_bits = candidates[q], out.shape[2], near.row_bits
    wanted, count = min(words.shape[0], most), np.int64(near.counts[q])
    if count > keys.shape[0]:
        count = _search_again(words, queries[q], keys, wanted, row_bits, top, digits, state)
    count = _keep(keys, count, _last_near(keys, count, wanted, top, digits, state), state)
    i = thread
    while i < most:
        if i < count:
            key, place = keys[i], 0
            for j in range(count):
                place += 1 if keys[j] < key else 0
            out[0, first + q, place] = key >> row_bits
            out[1, first + q, place] = key & ((1 << row_bits) - 1)
        else:
            out[0, first + q, i] = _FAR
            out[1, first + q, i] = -1
        i += threads
