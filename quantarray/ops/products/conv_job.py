"""A checked convolution over channels, and the facts about it that choices ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...core.format import WORD_BITS, word_count
from ...kernels.operands import Forms
from ...kernels.windows import Window, tile_count
from . import folded_thresholds, scaled_sums
from .lanes import QUAD, TILE
from .operand import Operand

_MOST_SEEN = 1 << 15  # words of the rows under the windows of one row that are made bytes at a time: 2 MiB


class Options(NamedTuple):
    """A set of the arguments of a convolution besides x, w, bias and out, by which prepared calls are looked up."""

    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    pad_value: Any
    requantize: Thresholds | None
    out_dtype: Any
    data_format: Any
    flip_kernel: Any


class Shortcut(NamedTuple):
    """A shortcut that is added to a convolution before its thresholds."""

    residual: Any
    return_sum: Any


@dataclass(frozen=True)
class Job:
    """A checked convolution, channels last; `terms` are those of x, `b` is w lowered, `shape` the result's."""

    device: str
    w: QuantArray
    terms: Array
    plain: bool  # x is integers whose words kernels take as they are
    b: Operand
    window: Window
    groups: int
    dtype: np.dtype[Any]
    pad: float
    bias: Array | None
    requantize: Thresholds | None
    shape: tuple[int, ...]
    of_bytes: bool  # x is an array of bytes, which the kernel takes as they are
    merged: bool = False  # w has the groups of the caller's merged
    folds: bool = True  # constants of x have thresholds that are equivalent to those of real results
    shared: bool = True  # constants of x are one for all images
    unrolled: int = 0  # axes of windows, the last ones, along which taps are made rows of bits before the kernel

    @property
    def real(self) -> bool:
        return self.dtype == np.float32

    @property
    def words(self) -> int:
        """Count the words that a window spans."""
        return self.words_of(self.w.shape[3])

    @property
    def side_by_side(self) -> int:
        """Count the axes of windows, the last ones, along which taps are adjacent, without bits between."""
        return len(self.window.size) if self.of_bytes else self.unrolled

    @property
    def rows(self) -> tuple[int, int]:
        """(rows of taps side by side in a window, taps in each)."""
        size, whole = self.window.size, len(self.window.size) - self.side_by_side
        return math.prod(size[:whole]), math.prod(size[whole:])

    def words_of(self, channels: int) -> int:
        """Count the words that a window would span with so many channels a group."""
        rows, taps = self.rows
        return rows * word_count(taps * channels)

    @property
    def few_channels(self) -> bool:
        """True where a pixel fills less than a word, so that taps side by side could save some."""
        two_axes = len(self.window.size) == 2
        return two_axes and not self.of_bytes and self.groups == 1 and self.w.shape[3] < WORD_BITS

    @property
    def pixels(self) -> int:
        """Count the output pixels of all images."""
        return math.prod(self.shape[:-1])

    @property
    def forms(self) -> Forms:
        """Describe the windows of all images besides their words, and the results."""
        ranks = self.requantize is not None and self.requantize.into.bits > 1
        if self.side_by_side or len(self.window.size) != 2:
            return Forms(ranks=ranks)
        images, channels, window = self.shape[0], self.w.shape[3], self.window
        words, used = word_count(channels), -(-channels // QUAD)
        fits = self.groups == 1 and 0 < window.seen_words(words) <= _MOST_SEEN
        positions = window.positions(images) if fits else 0
        tiles = tile_count(window, images, TILE) if positions else 0
        spare = words * WORD_BITS - channels >= 2 * QUAD
        quads = window.taps * used if spare else 0
        return Forms(tiles, images * window.squares, positions, words, quads, ranks)

    @property
    def elements(self) -> int:
        """Count the products that a result sums."""
        return self.window.taps * self.w.shape[3]

    @property
    def rescaled(self) -> bool:
        """True for real results of exact sums, which a kernel of their own rescales."""
        return self.real and not scaled_sums.refusal(self.device, self.requantize, self.terms, self.b, self.elements)

    @property
    def exact_sums(self) -> bool:
        """True where integers are summed, and real constants are applied to the sums if there are any."""
        return (
            not self.real
            or self.rescaled
            or not folded_thresholds.refusal(self.requantize, self.terms, self.b, self.elements, self.pad)
        )

    @property
    def of_integers(self) -> Job:
        """Return the exact sums of a real result."""
        return replace(self, dtype=np.dtype(np.int32), pad=0, bias=None, requantize=None)
