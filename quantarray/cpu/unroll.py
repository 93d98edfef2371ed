"""Windows of pixels of few bits as rows of bits, a tap of a line of windows at a time."""

import numpy as np

from . import threads
from .deal import Kernel

_LEAST = 1 << 16  # taps that are worth a parallel region


def unroll(words, length, size, stride, pads, dilation, out):
    planes, images, rows = out.shape[:3]
    if out.size:
        window = np.array([size, stride, dilation, pads], np.int64)
        taps = planes * images * rows * out.shape[3] * size[0] * size[1]
        threads.run(_unroll_rows, (words, length, window, out), images * rows, threads.workers(taps, _LEAST))


@Kernel
def _unroll_rows(words, length, window, out, first, last):
    height, width, rows, columns = words.shape[2], words.shape[3], out.shape[2], out.shape[3]
    (down, across), (sy, sx), (dy, dx), (top, left) = window
    line = np.empty((out.shape[4], columns), np.uint64)
    for plane in range(out.shape[0]):
        for row in range(first, last):
            image, i = row // rows, row % rows
            line[...] = 0
            for a in range(down):
                y = i * sy + a * dy - top
                for b in range(across if 0 <= y < height else 0):
                    bit, start = (a * across + b) * length, b * dx - left
                    begin, end = max(0, -(start // sx)), min(columns, (width - 1 - start) // sx + 1)
                    to, shift = np.uint64(bit >> 6), np.uint64(bit & 63)
                    y0, step = np.uint64(y), np.uint64(sx)
                    if sx == 1:
                        for j in range(np.uint64(begin), np.uint64(max(begin, end))):
                            line[to, j] |= words[plane, image, y0, j + np.uint64(start)] << shift
                    else:
                        for j in range(np.uint64(begin), np.uint64(max(begin, end))):
                            line[to, j] |= words[plane, image, y0, j * step + np.uint64(start)] << shift
                    if (bit & 63) + length > 64:
                        for j in range(np.uint64(begin), np.uint64(max(begin, end))):
                            word = words[plane, image, y0, j * step + np.uint64(start)]
                            line[to + np.uint64(1), j] |= word >> (np.uint64(64) - shift)
            for j in range(np.uint64(columns)):
                for k in range(np.uint64(out.shape[4])):
                    out[plane, image, i, j, k] = line[k, j]
