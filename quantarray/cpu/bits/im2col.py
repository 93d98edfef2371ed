"""Copy windows of pixels of few bits, or rows of windows, to rows of bits (im2col), a word of a line at a time."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..llvm.shifted import put_shifted
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel

_LEAST = 1 << 16  # taps that are worth a parallel region


def unroll(words, length, size, stride, pads, dilation, out):
    planes, images, rows = out.shape[:3]
    if out.size:
        arguments = words, *_taps(length, size, stride, pads, dilation), out
        taps = planes * images * rows * out.shape[3] * size[0] * size[1]
        threads.run(_unroll_rows, arguments, images * rows, threads.workers(taps, _LEAST))


@lru_cache(maxsize=256)
def _taps(length, size, stride, pads, dilation):
    """Return (window, taps): a tap is (word, rows down, pixels across, bits to the left, bits to the right), by words.

    A tap that crosses two words is listed twice. `window` is strides, pads, and where the last tap is.
    """
    (down, across), (dy, dx) = size, dilation
    taps = []
    for a, b in np.ndindex(down, across):
        word, bit = divmod((a * across + b) * length, 64)
        taps.append((word, a * dy, b * dx, bit, 0))
        if bit + length > 64:
            taps.append((word + 1, a * dy, b * dx, 0, 64 - bit))
    taps.sort(key=lambda tap: tap[0])
    return np.array([*stride, *pads, (down - 1) * dy, (across - 1) * dx], np.int64), np.array(taps, np.int64)


class _Across(NamedTuple):
    """A row of windows; those whose pixels are all inside the image are columns low .. high."""

    width: int  # of an image
    step: int
    left: int
    columns: int
    low: int
    high: int


@Kernel
def _unroll_rows(words, window, taps, out, first, last):
    planes, images, rows, columns, wide = out.shape
    height, width = words.shape[2:]
    down, step, top, left, below, reach = window
    low = min(_steps(left, step), columns)
    across = _Across(width, step, left, columns, low, max(low, min(_steps(width + left - reach, step), columns)))
    taken, target, alone = words.reshape(-1), out.reshape(-1), wide == 1
    line = target if alone else np.empty(columns * wide, np.uint64)
    inside, bounds = np.empty((len(taps), 4), np.int64), np.empty(wide + 1, np.int64)
    for plane in range(planes):
        image, i, listed = plane * images + first // rows, first % rows, False
        for row in range(first, last):
            y, to = i * down - top, (plane * images * rows + row) * columns * wide
            all_inside = 0 <= y < height - below
            if not (all_inside and listed):
                _find(taps, y, height, width, inside, bounds)
            listed = all_inside
            _put_line(taken, (image * height + y) * width - left, across, inside, bounds, line, to * alone)
            if not alone:
                _put_in_order(line, target, to, columns, wide)
            i += 1
            if i == rows:
                image, i = image + 1, 0


@inline
def _steps(length, step):
    """Count the steps that begin in a length."""
    return max(0, length if step == 1 else -(-length // step))


@inline
def _find(taps, y, height, width, inside, bounds):
    """List the taps inside the image of windows that begin in row y, as (pixels on, bits to the left, to the right,
    pixels across), and where those of each word begin.
    """
    n, word = 0, 0
    for t in range(len(taps)):
        while word <= taps[t, 0]:
            bounds[word], word = n, word + 1
        if 0 <= y + taps[t, 1] < height:
            inside[n, 0] = taps[t, 1] * width + taps[t, 2]
            inside[n, 1], inside[n, 2], inside[n, 3] = taps[t, 3], taps[t, 4], taps[t, 2]
            n += 1
    bounds[word:] = n


@inline
def _put_line(words, at, across, taps, bounds, line, to):
    """Write the windows of an output row: the first words of all, then their second words, and so on."""
    low, high = across.low, across.high
    for word in range(len(bounds) - 1):
        ours, begin = (bounds[word], bounds[word + 1]), to + word * across.columns
        if across.step == 1:
            put_shifted(words, at + low, taps, *ours, line, begin + low, high - low)
        else:
            _put_stepped(words, at, across, taps, *ours, line, begin)
        _put_words(words, at, across, taps, *ours, line, begin, 0, low)
        _put_words(words, at, across, taps, *ours, line, begin, high, across.columns)


@inline
def _put_stepped(words, at, across, taps, first, last, line, begin):
    """Write shifted words as `put_shifted` does, of pixels that are steps apart."""
    for j in range(across.low, across.high):
        word, pixel = np.uint64(0), at + j * across.step
        for t in range(first, last):
            source = np.uint64(pixel + taps[t, 0])
            word |= words[source] << np.uint64(taps[t, 1]) >> np.uint64(taps[t, 2])
        line[np.uint64(begin + j)] = word


@inline
def _put_words(words, at, across, taps, first, last, line, begin, low, high):
    """Write the words of columns whose windows reach over the border."""
    for j in range(low, high):
        word, x = np.uint64(0), j * across.step
        for t in range(first, last):
            if 0 <= x - across.left + taps[t, 3] < across.width:
                source = np.uint64(at + x + taps[t, 0])
                word |= words[source] << np.uint64(taps[t, 1]) >> np.uint64(taps[t, 2])
        line[np.uint64(begin + j)] = word


@inline
def _put_in_order(line, target, at, columns, wide):
    at, columns, wide = np.uint64(at), np.uint64(columns), np.uint64(wide)
    if wide == np.uint64(2):  # vectors
        for j in range(columns):
            target[at + np.uint64(2) * j] = line[j]
            target[at + np.uint64(2) * j + np.uint64(1)] = line[columns + j]
    else:
        for j in range(columns):
            for k in range(wide):
                target[at + j * wide + k] = line[k * columns + j]
