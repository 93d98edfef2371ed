"""Cut rows of bits into segments of another length: the same stream of bits.

`docs/kernels/layout.md` has the algebra and what was tried.
"""

import itertools
import math

import numpy as np

from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .place import place_rows

_LEAST = 1 << 13  # words that are worth a parallel region
_BLOCK = 4096  # words of a row in one task
_PERIOD = 64  # words of a short period; and periods that are worth going through them side by side
_CACHED = 3072  # words that stay in L1


def rebit(words, length, start, new_length, out):
    if not out.size:
        return
    if start or words.shape[1] * length != out.shape[1] * new_length:
        _shift(words, length, start, new_length, out)
    elif out[0].size >= _BLOCK:
        for row in range(len(words)):
            _rebit_stream(words[row], length, new_length, out[row])
    else:  # rows without a rest are one stream
        _rebit_stream(words.reshape(-1, words.shape[2]), length, new_length, out.reshape(-1, out.shape[2]))


def _rebit_stream(words, length, new_length, out):
    """Cut segments [segments words] of one stream again; segments of whole words are one."""
    total = words.shape[0] * length
    if length % 64 == 0:
        words, length = words.reshape(1, -1), total
    if new_length % 64 == 0:
        out, new_length = out.reshape(1, -1), total
    # A long segment is as many of a word
    unit, new_unit = (64 if len(a) == 1 else n for a, n in ((words, length), (out, new_length)))
    period = math.lcm(unit, new_unit)
    width, new_width = (period // n * (1 if len(a) == 1 else a.shape[1]) for a, n in ((words, unit), (out, new_unit)))
    periods = total // period
    if width + new_width > _PERIOD or periods < _PERIOD:
        _shift(words[None], length, 0, new_length, out[None])
        return
    ends = {period} | {i for a, n in ((words, unit), (out, new_unit)) if len(a) > 1 for i in range(0, period, n)} | {0}
    runs = [
        (_padded(first, words, length), last - first, _padded(first, out, new_length))
        for first, last in itertools.pairwise(sorted(ends))
    ]
    _run_through(words, width, runs, new_width, periods, out)
    done = periods * period
    if done < total and len(out) == 1:
        _shift(words[None], length, done, total - done, out[None, :, periods * new_width :])
    elif done < total:
        _shift(words[None], length, done, new_length, out[None, done // new_length :])


def _padded(bit, words, length):
    """Return the place of a bit of the stream in segments [segments words]."""
    return bit if len(words) == 1 else bit // length * words.shape[1] * 64 + bit % length


def _run_through(words, width, runs, new_width, periods, out):
    """Copy the runs (from, number of bits, to) of all periods: `width` words of words to `new_width` words of out."""
    source = words.reshape(-1)[: periods * width].reshape(periods, width)
    target = out.reshape(-1)[: periods * new_width].reshape(periods, new_width)
    threads.run(_periods, (source, np.array(runs), target), periods, threads.workers(target.size, _LEAST))


def _shift(words, length, start, new_length, out):
    tasks = out.shape[0] * -(-out[0].size // _BLOCK)
    threads.run(_shift_tasks, (words, length, start, new_length, out), tasks, threads.workers(out.size, _LEAST))


@Kernel
def _periods(words, runs, out, first, last):
    """Copy as many periods at a time as stay in cache: loads and shifts are the same for all."""
    many = _CACHED // (words.shape[1] + out.shape[1])
    for begin in range(first, last, many):
        end = min(begin + many, last)
        out[begin:end] = 0
        for i in range(runs.shape[0]):
            place_rows(words, runs[i, 0], 1, runs[i, 1], runs[i, 2], out, begin, end)


@inner
def _shift_words(words, length, at, new_length, word, out):
    """Copy a stream of segments of `length` bits, from bit `at` on, to words of segments of `new_length` bits.

    The first is word `word` of a segment. A shift register takes each word of the source once and gives each of out
    once: `low` has its next `have` bits, fewer than are wanted when a word is put in; what does not fit is `high`.
    """
    count, new_count = words.shape[1], -(-new_length // 64)
    last, new_last = length - (count - 1) * 64, new_length - (new_count - 1) * 64
    segment, offset = at // length, at % length
    source, skip = offset >> 6, offset & 63
    low, have = np.uint64(0), 0
    for to in range(out.size):
        want = new_last if word == new_count - 1 else 64
        word = 0 if word == new_count - 1 else word + 1
        high = np.uint64(0)
        while have < want:
            bits, more = words[segment, source] >> np.uint64(skip), 64 - skip
            source += 1
            if source == count:
                more = last - skip
                bits &= ~np.uint64(0) >> np.uint64(64 - more)
                segment, source = segment + 1, 0
            skip = 0
            low |= bits << np.uint64(have)
            high = (bits >> np.uint64(1)) >> np.uint64(63 - have)  # a shift by 64 is no shift on x86
            have += more
        rest = np.uint64(64 - want)
        out[to] = (low << rest) >> rest
        low = ((low >> np.uint64(1)) >> np.uint64(want - 1)) | (high << rest)
        have -= want


@Kernel
def _shift_tasks(words, length, start, new_length, out, first, last):
    rows = out.reshape(out.shape[0], -1)
    blocks = -(-rows.shape[1] // _BLOCK)
    for task in range(first, last):
        row, begin = task // blocks, task % blocks * _BLOCK
        segment, word = begin // out.shape[2], begin % out.shape[2]
        at = start + segment * new_length + word * 64
        _shift_words(words[row], length, at, new_length, word, rows[row, begin : begin + _BLOCK])
