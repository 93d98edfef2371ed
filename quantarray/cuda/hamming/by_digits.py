"""The nearest rows by Hamming distance: all distances first, then the smallest keys by radix selection.

A row's key is its distance with its index in the bits below. No two keys are equal and their order is the one that is
asked for, so the largest that is kept is found digit by digit from the top: count how often each digit occurs among the
keys that agree so far, and go on below the one in which the count of what is kept runs out.
"""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda

DIGIT = 8  # bits
DIGITS = 1 << DIGIT
QUERIES = 8  # that a thread compares with a row while it has its words
STRETCH = 16  # rows of a thread where digits are counted
_ROOM = 1 << 26  # distances in memory at a time
_FAR = np.iinfo(np.int64).max


def search(words, queries, out):
    at_a_time = max(1, min(_ROOM // max(1, words.shape[0]), launch.MOST_ROWS))
    for first in range(0, out.shape[1], at_a_time):
        _search(words, queries[first : first + at_a_time], first, out)


def _search(words, queries, first, out):
    (rows, length), asked, most = words.shape, queries.shape[0], out.shape[2]
    count, threads = min(rows, most), launch.WARPS * LANES
    row_bits, key_bits = max(1, (rows - 1).bit_length()), (64 * length).bit_length()
    keys = launch.scratch((asked, max(count, 1)), np.int64)
    if count:
        distances, counts = (launch.scratch((asked, n), np.int32) for n in (rows, DIGITS))
        state = launch.scratch((asked, 3), np.int64)
        across = -(-rows // threads)
        launch.run(_distances, (across, -(-asked // QUERIES)), threads, words, queries, distances)
        launch.run(_begin, asked, threads, count, counts, state)
        for shift in reversed(range(0, row_bits + key_bits, DIGIT)):
            grid = -(-rows // (threads * STRETCH)), asked
            launch.run(_count_digits, grid, threads, distances, row_bits, shift, state, counts)
            launch.run(_choose_digit, asked, DIGITS, counts, state)
        launch.run(_collect, (across, asked), threads, distances, row_bits, state, keys)
    launch.run(_put_in_order, (-(-most // threads), asked), threads, keys, count, row_bits, first, out)


@cuda.jit
def _distances(words, queries, out):
    """out[q, r] = the bits in which queries[q] and words[r] differ; a thread takes a row and some queries."""
    row, first = cuda.grid(1), cuda.blockIdx.y * QUERIES
    counts = cuda.local.array(QUERIES, np.int32)
    if row < words.shape[0]:
        for q in range(QUERIES):
            counts[q] = 0
        for k in range(words.shape[1]):
            word = words[row, k]
            for q in range(QUERIES):
                counts[q] += cuda.popc(word ^ queries[min(first + q, queries.shape[0] - 1), k])
        for q in range(QUERIES):
            if first + q < queries.shape[0]:
                out[first + q, row] = counts[q]


@cuda.jit
def _begin(count, counts, state):
    """state int64[asked 3]: the digits chosen so far, how many keys with these digits are kept, how many are stored."""
    q, digit = cuda.blockIdx.x, cuda.threadIdx.x
    if digit == 0:
        state[q, 0], state[q, 1], state[q, 2] = 0, count, 0
    while digit < DIGITS:
        counts[q, digit] = 0
        digit += cuda.blockDim.x


@cuda.jit
def _count_digits(distances, row_bits, shift, state, counts):
    """counts[q, d] += the keys that begin with the digits chosen so far and have digit d at bit `shift`."""
    digits = cuda.shared.array(DIGITS, np.int32)
    thread, threads, q = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.y
    digit = thread
    while digit < DIGITS:
        digits[digit] = 0
        digit += threads
    cuda.syncthreads()
    row = cuda.blockIdx.x * threads * STRETCH + thread
    for _ in range(STRETCH):
        if row < distances.shape[1]:
            key = (np.int64(distances[q, row]) << row_bits) | row
            if key >> (shift + DIGIT) == state[q, 0]:
                cuda.atomic.add(digits, (key >> shift) & (DIGITS - 1), 1)
        row += threads
    cuda.syncthreads()
    digit = thread
    while digit < DIGITS:
        if digits[digit] != 0:
            cuda.atomic.add(counts, (q, digit), digits[digit])
        digit += threads


@cuda.jit
def _choose_digit(counts, state):
    """Choose the digit at which the count of keys to keep runs out; each thread tests one digit."""
    digits = cuda.shared.array(DIGITS, np.int32)
    q, digit = cuda.blockIdx.x, cuda.threadIdx.x
    digits[digit] = counts[q, digit]
    counts[q, digit] = 0
    chosen, count = state[q, 0], state[q, 1]
    cuda.syncthreads()
    below = np.int64(0)
    for d in range(digit):
        below += digits[d]
    if below < count <= below + digits[digit]:
        state[q, 0], state[q, 1] = (chosen << DIGIT) | digit, count - below


@cuda.jit
def _collect(distances, row_bits, state, keys):
    """Collect the keys up to the last that is kept, in any order."""
    row, q = cuda.grid(1), cuda.blockIdx.y
    if row < distances.shape[1]:
        key = (np.int64(distances[q, row]) << row_bits) | row
        if key <= state[q, 0]:
            keys[q, cuda.atomic.add(state, (q, 2), 1)] = key


@cuda.jit
def _put_in_order(keys, count, row_bits, first, out):
    """Put each key at the number of smaller ones."""
    i, q = cuda.grid(1), cuda.blockIdx.y
    if i < count:
        key, place = keys[q, i], 0
        for j in range(count):
            place += 1 if keys[q, j] < key else 0
        out[0, first + q, place] = key >> row_bits
        out[1, first + q, place] = key & ((1 << row_bits) - 1)
    elif i < out.shape[2]:
        out[0, first + q, i] = _FAR
        out[1, first + q, i] = -1
