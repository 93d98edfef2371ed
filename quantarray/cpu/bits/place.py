"""Copy bits of a row to other places of a row: the one primitive of slices, joins, rolls, pads and tiles.

`docs/kernels/place.md` has the algebra and what was tried.
"""

import numpy as np
from numba import carray

from ..llvm.vectors import words_at
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .stride import reversed_bits, squeeze, stepped_words, table_for

_LEAST = 1 << 15  # words that are worth a parallel region
_FEW, _ROWS = 8, 256  # words of a short run, and rows of such runs that stay in cache
_LONG = 64  # words of a row whose parts are found once for it
_BLOCK = 4096  # words of a row in one task: a single long row is spread over threads too


def place(parts, out):
    if not out.size:
        return
    runs, steps, at = [], [], 0
    for words, start, step, count in parts:
        if count:
            runs.append((words.ctypes.data, *words.shape, start, step, count, at))
            steps.append(table_for(start, step, at))
        at += count
    arguments = np.array(runs, np.int64), np.array(steps), out
    threads.run(_place_tasks, arguments, _tasks(*out.shape), threads.workers(out.size, _LEAST))


@inner
def _bit(words, row, i):
    return (words[row, i >> 6] >> np.uint64(i & 63)) & np.uint64(1)


@inner
def _run(words, row, i, n):
    """Load bits i .. i + n of a row, n from 1 to 64; bits above them are undefined."""
    shift = i & 63
    bits = words[row, i >> 6] >> np.uint64(shift)
    if shift + n > 64:
        bits |= words[row, (i >> 6) + 1] << np.uint64(64 - shift)
    return bits


@inner
def _fetch(words, row, i, step, n, table):
    """Load bits i, i + step, .. of a row as the n lowest bits of a word, zeros above."""
    rest = np.uint64(64 - n)
    if step == 1:
        return (_run(words, row, i, n) << rest) >> rest
    if step == -1:
        return reversed_bits(_run(words, row, i - n + 1, n)) >> rest
    if step == 0:
        return (np.uint64(0) - _bit(words, row, i)) >> rest
    if step > 0:
        return (squeeze(words, row, i, step, n, table) << rest) >> rest
    return reversed_bits(squeeze(words, row, i + (n - 1) * step, -step, n, table)) >> rest


@inner
def _same_in_rows(words, start, step, count, at, table, out, first, last, begin, end):
    """Copy a run of the one row of words to many rows: each word is computed once for all."""
    for word in range(max(begin, at >> 6), min(end, ((at + count - 1) >> 6) + 1)):
        low, high = max(at, word * 64), min(at + count, word * 64 + 64)
        bits = _fetch(words, 0, start + (low - at) * step, step, high - low, table)
        bits, to = bits << np.uint64(low - word * 64), out[first:last, word]
        for k in range(len(to)):
            to[k] |= bits


@inner
def _place_words(words, row, start, step, count, at, table, out, begin, end):
    for word in range(begin, end):
        first, last = max(at, word * 64), min(at + count, word * 64 + 64)
        bits = _fetch(words, row, start + (first - at) * step, step, last - first, table)
        out[row, word] |= bits << np.uint64(first - word * 64)


@inner
def _whole_words(words, row, start, step, at, out, begin, end):
    """Copy whole words of a run with step 1 or -1: two loads and two shifts each, which SIMD does.

    Slices, and not indices that add up: the compiler must see that none is negative, or it is 3x slower. Backwards
    words come in the order of the source first and change places in cache, 2x faster than storing them in reverse.
    """
    n = end - begin
    if n <= 0:
        return
    lowest = start + begin * 64 - at if step == 1 else start - (end * 64 - 1 - at)
    first = lowest >> 6
    low, high, to = words[row, first : first + n], words[row, first + 1 : first + n + 1], out[row, begin:end]
    right = np.uint64(lowest & 63)
    left = np.uint64(63) - right  # and one more: a shift by 64 is no shift on x86
    if step == 1:
        for k in range(n):
            to[k] = (low[k] >> right) | ((high[k] << np.uint64(1)) << left)
        return
    for k in range(n):
        to[k] = reversed_bits((low[k] >> right) | ((high[k] << np.uint64(1)) << left))
    for k in range(n >> 1):
        to[k], to[n - 1 - k] = to[n - 1 - k], to[k]


@inner
def place_rows(words, start, step, count, at, out, first, last):
    """Copy short runs with step 1 or -1 in many rows, a word at a time: loads and shifts are the same for all rows."""
    for word in range(at >> 6, ((at + count - 1) >> 6) + 1):
        begin, end = max(at, word * 64), min(at + count, word * 64 + 64)
        source = start + begin - at if step == 1 else start - (end - 1 - at)
        right, place = np.uint64(source & 63), np.uint64(begin - word * 64)
        left, rest = np.uint64(63) - right, np.uint64(64 - (end - begin))
        low = words[first:last, source >> 6]
        high = words[first:last, (source + end - begin - 1) >> 6]  # the same word where the bits do not cross: cut off
        to = out[first:last, word]
        for k in range(last - first):
            bits = (low[k] >> right) | ((high[k] << np.uint64(1)) << left)
            bits = bits << rest if step == 1 else reversed_bits(bits)
            to[k] |= (bits >> rest) << place


@inner
def _place_row(words, row, start, step, count, at, table, out, begin, end):
    """Copy the part of a run that falls in words begin .. end of one row."""
    last = (at + count - 1) >> 6
    begin, end = max(begin, at >> 6), min(end, last + 1)
    inner, after = begin, begin
    if step == 1 or step == -1:
        # Of a whole word the next one is read too, which the last of the source does not have
        inner = max(begin, (at + 63 if step == 1 else at + 127) >> 6)
        after = max(inner, min(end, last))
        _whole_words(words, row, start, step, at, out, inner, after)
    elif step:
        inner = max(begin, (at + 63) >> 6)
        after = max(inner, min(end, (at + count) >> 6))
        inner, after = stepped_words(words, row, start, step, at, table, out, inner, after)
    _place_words(words, row, start, step, count, at, table, out, begin, min(inner, end))
    _place_words(words, row, start, step, count, at, table, out, after, end)


def _tasks(rows, words):
    """Count the tasks: many short rows are one, stretches of long rows one each."""
    return -(-rows // _ROWS) if words < _LONG else rows * -(-words // _BLOCK)


@inner
def _stretch(task, rows, words):
    """Return rows first .. last and words begin .. end of a task."""
    if words < _LONG:
        return task * _ROWS, min(rows, task * _ROWS + _ROWS), 0, words
    blocks = -(-words // _BLOCK)
    row, begin = task // blocks, task % blocks * _BLOCK
    return row, row + 1, begin, min(words, begin + _BLOCK)


@Kernel
def _place_tasks(parts, steps, out, first_task, last_task):
    """Copy all parts of a task's words while these are in cache. parts: address, shape, start, step, count, at."""
    for task in range(first_task, last_task):
        first, last, begin, end = _stretch(task, out.shape[0], out.shape[1])
        for i in range(parts.shape[0]):
            words = carray(words_at(parts[i, 0]), (parts[i, 1], parts[i, 2]))
            start, step, count, at = parts[i, 3], parts[i, 4], parts[i, 5], parts[i, 6]
            short = (step == 1 or step == -1) and ((at + count - 1) >> 6) - (at >> 6) < _FEW
            if words.shape[0] < out.shape[0]:
                _same_in_rows(words, start, step, count, at, steps[i], out, first, last, begin, end)
            elif short and last - first > 1:
                place_rows(words, start, step, count, at, out, first, last)
            else:
                for row in range(first, last):
                    _place_row(words, row, start, step, count, at, steps[i], out, begin, end)
