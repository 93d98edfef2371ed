"""Depthwise convolution of integers, made ready for codes as bytes and numbers of 16 bits."""

from __future__ import annotations

import numpy as np

from ..device import has_kernel
from ..dtypes import Array
from ..format import WORD_BITS
from ..kernels import Runs, Taps
from ..window import Window, classes, stretches, tap_offsets
from .lanes import CopyLanes

_PLANES = 8  # that a byte holds
_MOST = 2**15 - 1
_RUN = 64  # pixels that are a task


def possible(device: str, terms: Array, values: Array, dtype: np.dtype[np.generic]) -> bool:
    """True where sums are int32, of one term a side, and weights have 16 bits: values int64[terms taps outputs]."""
    one = len(terms) == len(values) == 1 and terms[0, 1] <= _PLANES and dtype == np.int32
    small = one and bool(values.size) and int(np.abs(values).max()) <= _MOST
    return small and has_kernel(device, "depthwise_bytes")


def weights(terms: Array, values: Array, lanes: CopyLanes) -> Taps:
    """Values int64[1 taps outputs] as the kernel takes them."""
    by_lane = lanes(values[0]).reshape(values.shape[1], lanes.copies, lanes.width)
    largest = int(np.abs(values[0]).sum(axis=0).max()) * (2 ** int(terms[0, 1]) - 1)
    laid_out = np.ascontiguousarray(by_lane.transpose(1, 0, 2), np.int16)
    return Taps(laid_out, largest <= _MOST, lanes.channels, lanes.width // WORD_BITS)


def runs(window: Window, lanes: CopyLanes) -> Runs:
    """The window over pixels of so many channels."""
    found, period, apart = classes(window), lanes.width // WORD_BITS, window.stride[-1]
    offsets, (_, tap) = tap_offsets(window) * period, np.nonzero(found.inside)
    reach = [(offsets[row][0], offsets[row][-1] + period) if row.any() else (0, 0) for row in found.inside]
    first, count, kind = stretches(window, apart, _RUN).T
    return Runs(
        runs=np.stack([found.origin[first] * period, first, count, kind], axis=1),
        seen=np.stack([offsets[tap] * WORD_BITS, tap * lanes.width], axis=1),
        first_seen=np.concatenate([[0], found.inside.sum(axis=1).cumsum()]),
        reach=np.array(reach, np.int64).reshape(-1, 2),
        step=apart * period,
        image_words=int(np.prod(window.image)) * period,
        image_rows=window.pixels,
    )
