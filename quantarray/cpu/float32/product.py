"""Products of float32 values: convolutions, of groups too, and matrix products, in order of the contraction.

A BLAS is as fast on two idle cores, but its threads spin after each product: the pool's threads then start late, and a
network's packed layers ran on one core. These are tasks of the pool like all others.
"""

import numpy as np

from ..runtime import threads
from ..runtime.jit import borrowing
from ..runtime.schedule import Kernel
from .product_tile import ROWS, copy_channels, multiply_channels, multiply_rows

_LEAST = 1 << 18  # products that are worth a parallel region
_COLUMNS = 128  # of a task
_NO_SCALE = np.empty(0, np.float32)


def float_product(x, form, grid, w, bias, out):
    scaled_product(x, form, grid, w, _NO_SCALE, bias, out)


def scaled_product(x, form, grid, w, scale, bias, out):
    if not out.size:
        return
    tiles, chunks = -(-len(out) // ROWS), max(1, out.shape[1] // _COLUMNS)
    workers = threads.workers(out.size * len(w), _LEAST)
    groups = int(form[0, 4] * grid[:, 0].prod()) // max(1, len(w))
    if groups > 1:
        threads.run(_multiply_groups, (x, form, grid, w, scale, bias, out, groups), tiles, workers)
        return
    threads.run(_multiply_tiles, (x, form, grid, w, scale, bias, out, chunks), tiles * chunks, workers)


@Kernel
def _multiply_tiles(x, form, grid, w, scale, bias, out, chunks, first, last):
    depth, channels, taps = len(w), form[0, 4], grid[0, 0] * grid[1, 0] * grid[2, 0]
    plain = taps == 1
    for axis in range(3):  # without padding before or after
        plain = plain and grid[axis, 3] == 0 and (form[2, axis + 1] - 1) * grid[axis, 1] < form[0, axis + 1]
    tiles = (len(out) + ROWS - 1) // ROWS
    rows, gathered = np.empty(0 if plain else ROWS * depth, np.float32), -1
    for task in range(first, last):
        # Neighbours share columns of w, which are in L2, or a gathered window
        tile, chunk = (task % tiles, task // tiles) if plain else (task // chunks, task % chunks)
        row, count = tile * ROWS, min(ROWS, len(out) - tile * ROWS)
        begin = chunk * _COLUMNS
        columns = out.shape[1] - begin if chunk + 1 == chunks else _COLUMNS
        if not plain and tile != gathered:
            gathered = tile
            for r in range(count):
                _gather(x, row + r, form, grid, 0, channels, rows, r * depth)
        r, source, next_element = 0, x if plain else rows, form[1, 4] if plain else 1
        while r < count:
            at, apart, alike = _stretch(row + r, count - r, form, grid) if plain else (0, depth, count)
            multiply_rows(source, at, apart, next_element, alike, depth, w, scale, bias, begin, columns, out, row + r)
            r += alike


@Kernel
def _multiply_groups(x, form, grid, w, scale, bias, out, groups, first, last):
    """Gather the windows of a tile, of all channels where a group has one, else of a group, and multiply each group."""
    depth, channels, outputs = len(w), form[0, 4] // groups, out.shape[1] // groups
    taps = depth // max(1, channels)
    width = taps * form[0, 4] if channels == 1 else depth
    rows = np.empty(ROWS * width, np.float32)
    for tile in range(first, last):
        row, count = tile * ROWS, min(ROWS, len(out) - tile * ROWS)
        for r in range(count if channels == 1 else 0):
            _gather(x, row + r, form, grid, 0, form[0, 4], rows, r * width)
        if channels == 1 and outputs == 1:
            for r in range(count):
                multiply_channels(rows, r * width, taps, w, bias, out, row + r)
            continue
        for group in range(groups):
            for r in range(0 if channels == 1 else count):
                _gather(x, row + r, form, grid, group * channels, channels, rows, r * width)
            at, apart = (group, form[0, 4]) if channels == 1 else (0, 1)
            multiply_rows(rows, at, width, apart, count, depth, w, scale, bias, group * outputs, outputs, out, row)


@borrowing
def _place(pixel, form, grid):
    """Return (image, places of a window's first tap along three axes) of an output pixel; form[2] has the output."""
    a, b, c = form[2, 1], form[2, 2], form[2, 3]
    image = pixel // (a * b * c)
    return (
        image,
        pixel // (b * c) % a * grid[0, 1] - grid[0, 3],
        pixel // c % b * grid[1, 1] - grid[1, 3],
        pixel % c * grid[2, 1] - grid[2, 3],
    )


@borrowing
def _offset(form, image, a, b, c):
    return image * form[1, 0] + a * form[1, 1] + b * form[1, 2] + c * form[1, 3]


@borrowing
def _stretch(pixel, most, form, grid):
    """Return (place of an output pixel's one tap, distance from pixel to pixel, how many pixels have that distance)."""
    image, a, b, c = _place(pixel, form, grid)
    at, apart, alike = _offset(form, image, a, b, c), 0, 1
    while alike < most:
        image, a, b, c = _place(pixel + alike, form, grid)
        step = _offset(form, image, a, b, c) - at - apart * (alike - 1)
        if alike > 1 and step != apart:
            break
        apart, alike = step, alike + 1
    return at, apart, alike


@borrowing
def _gather(x, pixel, form, grid, channel, channels, rows, to):
    """Copy channels of the window of an output pixel to rows[to ..], taps in order and 0 outside of the image."""
    image, at_0, at_1, at_2 = _place(pixel, form, grid)
    for i in range(grid[0, 0]):
        a = at_0 + i * grid[0, 2]
        for j in range(grid[1, 0]):
            b = at_1 + j * grid[1, 2]
            for k in range(grid[2, 0]):
                c = at_2 + k * grid[2, 2]
                inside = 0 <= a < form[0, 1] and 0 <= b < form[0, 2] and 0 <= c < form[0, 3]
                at = _offset(form, image, a, b, c) + channel * form[1, 4] if inside else -1
                copy_channels(x, at, form[1, 4], channels, rows, to)
                to += channels
