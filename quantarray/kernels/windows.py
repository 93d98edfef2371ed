"""Windows: how stride, padding and dilation map output pixels to input pixels. Pure integers, any number of axes.

An output pixel sees a box of taps, and its *border class* is which of them are inside the image. Pixels of one class
see the same taps at the same distances, so a kernel needs no case for borders: it takes tiles of pixels of one class
and walks that class' runs of words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product
from typing import NamedTuple

import numpy as np

from ..core.bounded_cache import cached
from ..core.dtypes import Array
from ..core.forks import cached_property
from ..core.format import RUN_WORDS
from .operands import Frame, Plan, Squares

_FAR = 1 << 62
_POSITIONS = 512  # of images that are worked on together
_WIDEST = 4 * _POSITIONS  # row of an image


@dataclass(frozen=True)
class Window:
    """A window's geometry, one entry per spatial axis; `pads` are (before, after).

    Of these, means count the places of `counted` in, or none.

    >>> Window((5, 5), (3, 3), (2, 2), ((1, 1), (0, 1)), (1, 1)).output
    (3, 2)
    """

    image: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    counted: tuple[tuple[int, int], ...] | None = None

    @cached_property
    def output(self) -> tuple[int, ...]:
        """Count output pixels per axis: floor((image + before + after - span) / stride) + 1, at least 0."""
        return tuple(
            max(0, (n + b + a - ((k - 1) * d + 1)) // s + 1)
            for n, k, s, (b, a), d in zip(self.image, self.size, self.stride, self.pads, self.dilation, strict=True)
        )

    @cached_property
    def taps(self) -> int:
        return math.prod(self.size)

    @cached_property
    def squares(self) -> int:
        """Count the `squares`; 0 where the window is not 3x3 at stride 1."""
        plain = self.size == (3, 3) and self.stride == self.dilation == (1, 1)
        return math.prod(-(-n // 2) for n in self.output) if plain else 0

    @cached_property
    def pitch(self) -> int:
        """Count the pixels from one row to the next in images at stride 1, with the zeros between them, which serve
        both."""
        return max(self.image[1] + max(self.pads[1]), self.output[1])

    def together(self, images: int) -> int:
        """Count the images that a `Frame` has together: as many as have _POSITIONS, all but the last ones the same
        number."""
        most = max(1, _POSITIONS // (self.output[0] * self.pitch))
        return -(-images // -(-images // most))

    def positions(self, images: int) -> int:
        """Count the positions of a `Frame` in whole pieces of 16; 0 where the stride is not 1 or rows are too wide."""
        if self.stride != (1, 1) or not self.pixels or not images or self.pitch > _WIDEST:
            return 0
        together = self.together(images)
        return -(-images // together) * (-(-together * self.output[0] * self.pitch // 16) * 16)

    def seen_words(self, words: int) -> int:
        """Count the words between zeros that the windows of one output row see, for pixels of `words` words."""
        return ((self.size[0] - 1) * self.dilation[0] + 1) * self.pitch * words

    @cached_property
    def padding_only(self) -> bool:
        """True where a window sees padding and nothing of the image."""
        axes = zip(self.image, self.size, self.stride, self.pads, self.dilation, self.output, strict=True)
        for n, k, s, (before, _), d, out in axes:
            start = np.arange(out, dtype=np.int64) * s - before
            first = np.maximum(-(start // d), 0)  # the first tap that is not before the image
            if ((first >= k) | (start + first * d >= n)).any():
                return True
        return False

    @cached_property
    def pixels(self) -> int:
        return math.prod(self.output)


def over_images(window: Window, images: int) -> Window:
    """View the window over some images as one with an axis more, so that a tile may take pixels of all of them."""
    return Window(
        (images, *window.image), (1, *window.size), (1, *window.stride), ((0, 0), *window.pads), (1, *window.dilation)
    )


def lifted(window: Window) -> Window:
    """View the window over lines as one over images of one row; itself where it has two axes or more."""
    if len(window.image) > 1:
        return window
    counted = None if window.counted is None else ((0, 0), *window.counted)
    return Window(
        (1, *window.image),
        (1, *window.size),
        (1, *window.stride),
        ((0, 0), *window.pads),
        (1, *window.dilation),
        counted,
    )


def images_of_a_tile(images: int, tile: int) -> int:
    """Count the images of which each tile takes pixels, where all have the same constants."""
    return math.gcd(max(images, 1), tile)


def same_padding(image: int, size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Compute the padding that gives ceil(image / stride) output pixels; an odd one goes at the end.

    >>> same_padding(56, 3, 1, 1), same_padding(56, 3, 2, 1), same_padding(7, 2, 1, 1)
    ((1, 1), (0, 1), (0, 1))
    """
    total = max((-(-image // stride) - 1) * stride + (size - 1) * dilation + 1 - image, 0)
    return total // 2, total - total // 2


class Classes(NamedTuple):
    """A window's border classes.

    `of_pixel` int64[pixels] is each output pixel's class; `inside` bool[classes, taps] says which taps of a class are
    inside the image; `origin` int64[pixels] is the input pixel under a window's first tap, which may be outside;
    `counted` int64[classes] is the number of taps that a mean is divided by.
    """

    of_pixel: Array
    inside: Array
    origin: Array
    counted: Array


@cached
def classes(window: Window) -> Classes:
    """Find the border classes of a window, and where each output pixel's window begins."""
    inside, counted = [np.ones(1, bool)], np.ones(1, np.int64)
    of_pixel, origin = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for axis, n in enumerate(window.image):
        kinds, numbers, of, start = _classes_of_axis(window, axis)
        inside = [np.logical_and.outer(a, b).reshape(-1) for a, b in product(inside, kinds)]
        counted = (counted[:, None] * numbers).reshape(-1)
        of_pixel = (of_pixel[:, None] * len(kinds) + of).reshape(-1)
        origin = (origin[:, None] * n + start).reshape(-1)
    return Classes(of_pixel, np.array(inside).reshape(-1, window.taps), origin, counted)


def _classes_of_axis(window: Window, axis: int) -> tuple[Array, Array, Array, Array]:
    """(taps inside [classes, taps], taps that count in a mean [classes], class and begin of each output pixel)."""
    n, k = window.image[axis], window.size[axis]
    start = np.arange(window.output[axis], dtype=np.int64) * window.stride[axis] - window.pads[axis][0]
    taps = start[:, None] + np.arange(k) * window.dilation[axis]
    inside = counted = (taps >= 0) & (taps < n)
    if window.counted is not None:
        before, after = window.counted[axis]
        counted = (taps >= -before) & (taps < n + after)
    kinds, of = np.unique(np.concatenate([inside, counted], axis=1), axis=0, return_inverse=True)
    return kinds[:, :k], kinds[:, k:].sum(axis=1), of.reshape(-1), start


@cached
def tile_count(window: Window, images: int, tile: int) -> int:
    """Count the tiles of all images, each with pixels of one class."""
    together = images_of_a_tile(images, tile)
    pixels = np.bincount(classes(window).of_pixel) * together
    return int((-(-pixels // tile)).sum()) * images // together


def tap_offsets(window: Window) -> Array:
    """Count the input pixels between a window's first tap and each tap, int64[taps]."""
    offset = np.zeros(1, np.int64)
    for n, k, d in zip(window.image, window.size, window.dilation, strict=True):
        offset = (offset[:, None] * n + np.arange(k) * d).reshape(-1)
    return offset


@cached
def stretches(window: Window, most: int) -> Array:
    """Find stretches of neighbouring output pixels of one class whose windows begin at neighbouring input pixels, at
    most so many.

    int64[.., 3]: the first one, how many, their class.
    """
    borders = classes(window)
    begin = np.flatnonzero(np.diff(borders.of_pixel, prepend=-1) | (np.diff(borders.origin, prepend=_FAR) != 1))
    size = np.diff(begin, append=window.pixels)
    parts = -(-size // most)
    nth = np.arange(parts.sum()) - np.repeat(parts.cumsum() - parts, parts)
    first = np.repeat(begin, parts) + most * nth
    return np.stack([first, np.minimum(most, np.repeat(begin + size, parts) - first), borders.of_pixel[first]], axis=1)


def along(window: Window, axes: int) -> Window:
    """Reduce a window to the axes that are left if pixels hold the taps along the last `axes` axes side by side."""
    stay, ones = len(window.size) - axes, (1,) * axes
    return Window(
        image=(*window.image[:stay], *window.output[stay:]),
        size=(*window.size[:stay], *ones),
        stride=(*window.stride[:stay], *ones),
        pads=(*window.pads[:stay], *((0, 0),) * axes),
        dilation=(*window.dilation[:stay], *ones),
    )


def counted(window: Window, axes: int) -> Array:
    """Mark the taps that are counted, bool[classes, taps]: if one is inside, all beside it too."""
    inside = classes(window).inside
    beside = math.prod(window.size[len(window.size) - axes :])
    return np.repeat(inside.reshape(len(inside), -1, beside).any(axis=2), beside, axis=1)


@cached
def plan(window: Window, words: int, groups: int, tile: int, axes: int = 0) -> Plan:
    """Cut the window into tiles of output pixels and runs of words, for pixels of `groups` times `words` words.

    These hold the taps along the last `axes` axes side by side, with zeros for those outside the image.
    """
    borders, left = classes(window), along(window, axes)
    offsets = tap_offsets(left)
    first_run, runs = [0], []
    for mask in counted(window, axes)[:, :: window.taps // left.taps]:
        runs += _runs(np.flatnonzero(mask), offsets, words, groups)
        first_run.append(len(runs))
    tiles = [_tiles(np.flatnonzero(borders.of_pixel == c), tile) for c in range(len(borders.inside))]
    sizes = [len(counts) for _, counts in tiles]
    pixel_words = words * groups
    return Plan(
        pixels=np.concatenate([pixels for pixels, _ in tiles]),
        counts=np.concatenate([counts for _, counts in tiles]),
        classes=np.repeat(np.arange(len(sizes), dtype=np.int64), sizes),
        origin=classes(left).origin * pixel_words,
        first_run=np.array(first_run, np.int64),
        runs=np.array(runs, np.int64).reshape(-1, 3),
        image_words=math.prod(left.image) * pixel_words,
        parts=1,
    )


@cached
def squares(window: Window, words: int, groups: int) -> Squares:
    """Cut a 3x3 window at stride 1 into squares of 2 by 2 output pixels, for pixels of `groups` times `words` words."""
    (height, width), (rows, columns) = window.image, window.output
    top, left = (np.arange(0, n, 2, dtype=np.int64) for n in (rows, columns))
    y, x = (corner.reshape(-1)[:, None] for corner in np.meshgrid(top, left, indexing="ij"))
    i, j = np.divmod(np.arange(16), 4)
    seen_y, seen_x = y - window.pads[0][0] + i, x - window.pads[1][0] + j
    inside = (seen_y >= 0) & (seen_y < height) & (seen_x >= 0) & (seen_x < width)
    i, j = np.divmod(np.arange(4), 2)
    exists, pixel = (y + i < rows) & (x + j < columns), (y + i) * columns + x + j
    return Squares(
        sources=np.where(inside, (seen_y * width + seen_x) * words * groups, -1),
        targets=np.where(exists, pixel, -1),
        kinds=classes(window).of_pixel[np.where(exists, pixel, 0)],
        image_words=height * width * words * groups,
        image_rows=rows * columns,
    )


@cached
def frame(window: Window, words: int, images: int) -> Frame:
    """Make the `Frame` of a window at stride 1 over some images, for pixels of `words` words."""
    together, borders = window.together(images), classes(window)
    (height, width), (rows, columns) = window.image, window.output
    strips = [
        [(begin, end - begin, row[begin]) for begin, end in _equal(row)]
        for row in borders.of_pixel.reshape(rows, columns)
    ]
    offsets = tap_offsets(replace(window, image=(0, together * window.pitch)))
    runs = _runs(np.arange(window.taps), offsets, words, 1)
    return Frame(
        runs=np.array(runs, np.int64),
        first_run=np.array([0, len(runs)], np.int64),
        strips=np.array(list(chain.from_iterable(strips)), np.int64),
        first_strip=np.cumsum([0, *map(len, strips)], dtype=np.int64),
        columns=columns,
        image_rows=height,
        image_words=height * width * words,
        row_words=width * words,
        pixel_words=words,
        top=window.pads[0][0],
        left=window.pads[1][0],
        pitch=window.pitch,
        together=together,
        row=together * window.pitch,
        seen=(window.size[0] - 1) * window.dilation[0] + 1,
    )


def _equal(numbers: Array) -> Iterator[tuple[int, int]]:
    """(begin, end) of each stretch of equal numbers."""
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    return pairwise(cuts)


def _tiles(members: Array, tile: int) -> tuple[Array, Array]:
    """Return pixels [tiles, tile] and how many of each tile count; the last pixel fills the last tile up."""
    tiles = -(-len(members) // tile)
    counts = np.minimum(tile, len(members) - tile * np.arange(tiles, dtype=np.int64))
    filled = np.minimum(np.arange(tiles * tile), max(len(members) - 1, 0))
    return members[filled].astype(np.int64).reshape(tiles, tile), counts


def _runs(taps: Array, offsets: Array, words: int, groups: int) -> list[tuple[int, int, int]]:
    """(word from the origin, word of the weight, length) of the taps; neighbours merge where words are adjacent."""
    runs: list[tuple[int, int, int]] = []
    for tap in taps:
        at, weight = int(offsets[tap]) * words * groups, int(tap) * words
        if runs and groups == 1 and runs[-1][0] + runs[-1][2] == at and runs[-1][1] + runs[-1][2] == weight:
            runs[-1] = (runs[-1][0], runs[-1][1], runs[-1][2] + words)
        else:
            runs.append((at, weight, words))
    return [part for run in runs for part in _parts(*run)]


def _parts(at: int, weight: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Cut a run into runs of at most RUN_WORDS words."""
    for start in range(0, length, RUN_WORDS):
        yield at + start, weight + start, min(RUN_WORDS, length - start)


@cached
def row_plan(rows: int, words: int, part_words: int, tile: int) -> Plan:
    """Plan rows of a matrix as pixels of one class; the contraction in parts of `part_words` words."""
    pixels, counts = _tiles(np.arange(rows), tile)
    parts = [[*_parts(at, at, min(part_words, words - at))] for at in range(0, words, part_words)] or [[(0, 0, 0)]]
    runs = [run for part in parts for run in part]
    return Plan(
        pixels=pixels,
        counts=counts,
        classes=np.zeros(len(counts), np.int64),
        origin=np.arange(rows, dtype=np.int64) * words,
        first_run=np.cumsum([0, *map(len, parts)], dtype=np.int64),
        runs=np.array(runs, np.int64).reshape(-1, 3),
        image_words=rows * words,
        parts=len(parts),
    )
