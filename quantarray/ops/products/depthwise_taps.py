"""Depthwise convolution of integers, made ready for codes as bytes and numbers of 8 or 16 bits, two taps at a time.

Two neighbouring taps of a row of the window meet two neighbouring pixels, whose bytes are adjacent in memory. Rows are
padded with zeros on both sides, so that all windows of a row see the same pairs: the value of padding is in the
constants of each border class, as x's code 0 adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from ...backends.registry import empty, has_kernel, kernel
from ...core.dtypes import Array
from ...core.forks import cached_property
from ...core.format import WORD_BITS, empty_lines
from ...kernels.operands import Cuts, Finish, Left, PairedRows, Taps
from ...kernels.windows import Window, classes
from . import calls, epilogue
from .lanes import CopyLanes
from .rank_lines import SURE, lines_of

_PLANES = 8  # that a byte holds
_MOST, _MOST_BYTE, _MOST_SUM, _LOWEST = 2**15 - 1, 2**7 - 1, 2**31 - 1, -(2**31)
_CUTS = 31  # thresholds up to which all are compared with; more are found by bisection


@dataclass(frozen=True)
class ByBytes:
    """A depthwise convolution of codes as bytes, called as a `Call` is."""

    device: str
    step: int  # of x, which is its term's but for the sign
    right: Taps
    plan: PairedRows
    finish: Finish
    packed: calls.Packed | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def finished(self, finish: Finish, packed: calls.Packed | None) -> ByBytes:
        """Return the same sums with another last step."""
        return replace(self, finish=finish, packed=packed)

    def __call__(self, x: Left, out: Array | None = None) -> Any:
        """Compute a dense array, C-contiguous, in `out` if it is passed; or a QuantArray of thresholded codes."""
        operands = x, self.right, self.plan
        if self.packed is None:
            result = empty(self.device, self.shape, self.dtype) if out is None else out
            kernel(self.device, "depthwise_bytes")(*operands, self.finish, result.reshape(-1, self.shape[-1]))
            return result
        words = self.packed.empty()
        if self.cuts is not None:
            kernel(self.device, "depthwise_codes")(*operands, self.cuts, words.reshape(self.packed.rows))
        else:
            kernel(self.device, "depthwise_bytes")(*operands, self.finish, words.reshape(self.packed.rows))
        return self.packed(words)

    @cached_property
    def cuts(self) -> Cuts | None:
        """Return which sums pass the thresholds; None where codes do not count them, or there are many."""
        thresholds, flips = self.finish.thresholds, self.finish.flip.view(np.uint64)
        if len(self.right.values) > 1 or len(thresholds) > _CUTS or not epilogue.are_counts(self.finish.toggles):
            return None
        limits = (thresholds - self.finish.extra.astype(np.int64)[:, None]) // max(self.step, 1)
        if limits.size and (limits == limits[:1]).all():
            limits = limits[:1]
        most, dtype = (_MOST, np.int16) if self.right.values.dtype == np.int8 else (_MOST_SUM, np.int32)
        laid_out = empty_lines(limits.shape, np.dtype(dtype))
        laid_out[...] = limits.clip(-most - 1, most)
        lanes = np.arange(self.right.period * WORD_BITS) < self.right.channels
        bits = np.stack([flips, np.packbits(lanes, bitorder="little").view(np.uint64)], axis=1)
        return Cuts(laid_out, bits, *_lines(laid_out, most, lanes))


def _lines(limits: Array, most: int, lanes: Array) -> tuple[Array, Array]:
    """Return the lines and ends of `Cuts`, empty where a lane has none that is always right.

    limits [classes T lanes]: no sum is over `most`, and all sums are over the number before -most.
    """
    wide = np.where((limits >= most) | ~lanes, _MOST_SUM, limits.astype(np.int64))
    rows = [lines_of(one.astype(np.int32)) for one in np.where(limits < -most, _LOWEST, wide)]
    if not all(one.size and (one[-1] == SURE).all() for one in rows):
        return np.empty((0, 2, 0), np.float32), np.empty((0, 2, 0), np.uint8)
    slope, shift, least, last, _ = np.stack(rows)[:, -5:].swapaxes(0, 1)
    lines, ends = (empty_lines((len(rows), 2, len(lanes)), np.dtype(kind)) for kind in (np.float32, np.uint8))
    lines[:, 0], lines[:, 1] = slope, shift.astype(np.float32) + np.float32(0.5)
    ends[:, 0], ends[:, 1] = least, last + 1
    return lines, ends


def refusal(device: str, terms: Array, values: Array, dtype: np.dtype[np.generic], window: Window) -> str:
    """Say why weights int64[terms taps outputs] are not multiplied as 16-bit numbers by codes as bytes; else ""."""
    if len(window.image) != 2:
        return "windows have not two axes"
    if not has_kernel(device, "depthwise_bytes"):
        return f"there is no kernel for it on {device}"
    if len(terms) > 1 or len(values) > 1 or terms[0, 1] > _PLANES:
        return f"an operand is a sum of several terms, or x has more than {_PLANES} bits"
    if dtype != np.int32 or not values.size:
        return "sums are not int32"
    small = int(np.abs(values).max()) <= _MOST and _largest(terms, values) <= _MOST_SUM
    return "" if small else "weights have more than 16 bits, or sums of codes may pass int32"


def prepare(
    device: str, terms: Array, values: Array, lanes: CopyLanes, window: Window, finish: Finish,
    output: calls.Output,
) -> ByBytes:  # fmt: skip
    """Prepare the call for weights int64[1 taps outputs] that are not refused."""
    step, period = int(terms[0, 3]), lanes.width // WORD_BITS
    right = Taps(_weights(terms, -values if step < 0 else values, lanes, window), lanes.channels, period)
    return ByBytes(device, abs(step), right, _rows(window, period), finish, *output)


def _largest(terms: Array, values: Array) -> int:
    """Bound the sums of codes times values of all channels."""
    return int(np.abs(values[0]).sum(axis=0).max()) * ((1 << int(terms[0, 1])) - 1)


def _weights(terms: Array, values: Array, lanes: CopyLanes, window: Window) -> Array:
    """[copies pairs 2 * lanes]; the last of an odd number of taps has a 0 beside it."""
    rows, columns = window.size
    pairs = -(-columns // 2)
    pairs_of_taps = np.zeros((rows, 2 * pairs, lanes.copies, lanes.width), np.int64)
    pairs_of_taps[:, :columns] = lanes(values[0]).reshape(rows, columns, lanes.copies, lanes.width)
    pairs_of_taps = pairs_of_taps.reshape(rows, pairs, 2, lanes.copies, lanes.width).transpose(3, 0, 1, 4, 2)
    narrow = _largest(terms, values) <= _MOST and int(np.abs(values).max()) <= _MOST_BYTE
    laid_out = empty_lines((lanes.copies, rows * pairs, 2 * lanes.width), np.dtype(np.int8 if narrow else np.int16))
    laid_out.reshape(pairs_of_taps.shape)[...] = pairs_of_taps
    return laid_out


def _rows(window: Window, period: int) -> PairedRows:
    (image_rows, image_columns), (size, columns) = window.image, window.size
    (down, across), (row_step, near) = window.stride, window.dilation
    (top, _), (left, _) = window.pads
    rows, width = window.output
    near = near if columns > 1 else 1  # a dilation of one tap may be anything
    spans = (size - 1) * row_step + 1
    begin = np.arange(rows) * down - top
    ends = np.clip(begin, 0, image_rows), np.clip(begin + spans, 0, image_rows)
    in_image = begin[:, None] + np.arange(size) * row_step
    inside = (in_image >= 0) & (in_image < image_rows)
    first = inside.argmax(axis=1)
    window_pairs = -(-columns // 2)
    every = gcd(across if width > 1 else 0, 2 * near if window_pairs > 1 else 0) or 1
    pairs = ((max(width, 1) - 1) * across + 2 * near * (window_pairs - 1)) // every + 1
    padded = (pairs - 1) * every + near + 1
    return PairedRows(
        seen=np.stack([*ends, in_image[np.arange(rows), first], first, inside.sum(axis=1)], axis=1),
        kinds=classes(window).of_pixel,
        image_rows=image_rows,
        row_words=image_columns * period,
        row_step=row_step,
        left=left,
        visible=max(0, min(image_columns, padded - left)),
        width=padded,
        near=near,
        every=every,
        pairs=pairs,
        window_pairs=window_pairs,
        apart=2 * near // every,
        step=across // every,
        slots=max(1, min(image_rows, spans)),
    )
