"""Sums of rows, and rows in ascending order, on the device that holds them.

Kernels add up blocks of a row, the same on each device, and the host adds up the blocks. So constants that are fitted
to sums are the same bits wherever the values are.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..backends.registry import current, device_of, empty, kernel, namespace, to_host
from ..core.dtypes import Array
from .extremes import extremes

MAGNITUDES, VALUES, SQUARES = range(3)  # what `row_sums` adds up
_BLOCK = 1 << 10  # values that a kernel adds up
_SHORT = 1 << 8  # the same of sorted rows, a part of which is added up for each threshold


def row_sums(
    rows: Array, power: int = VALUES, shift: Array | None = None, cuts: Array | None = None
) -> tuple[Array, Array]:
    """float64 [channels ranks]: how many values of rows [channels n] are of each rank, and the sum of their powers.

    The rank of a value is the number of `cuts` [channels ranks - 1] that it is at least; `shift` [channels] is
    subtracted from values first. rows are float32 or float64, C-contiguous.

    >>> row_sums(np.array([[1.0, 2, -4]]), MAGNITUDES, cuts=np.array([[1.5]]))
    (array([[2., 1.]]), array([[5., 2.]]))
    """
    count, total = _block_sums(rows, _BLOCK, power, shift, cuts).sum(axis=-1)
    return count, total


def row_means(rows: Array, power: int = VALUES, shift: Array | None = None) -> Array:
    """float64 [channels]: the means of powers of values, 0 of no values."""
    return np.asarray(row_sums(rows, power, shift)[1][:, 0] / max(rows.shape[1], 1))


def row_ends(rows: Array) -> tuple[Array, Array]:
    """float64 [channels] each: the least and the largest of each row."""
    low, high = extremes(rows, (1,))[:, :, 0]
    return low, high


def on_device_of(x: Array, host: Array) -> Array:
    """Return a NumPy array on the device of x."""
    device = device_of(x)
    if device == "cpu":
        return host
    with current(device):
        moved: Array = namespace(device).asarray(host)
    return moved


def _block_sums(
    rows: Array, size: int, power: int = VALUES, shift: Array | None = None, cuts: Array | None = None
) -> Array:
    """float64 [2 channels ranks blocks] of `sums`."""
    channels, n = rows.shape
    shift = np.zeros(channels) if shift is None else shift
    cuts = np.zeros((channels, 0)) if cuts is None else np.ascontiguousarray(cuts)
    device = device_of(rows)
    out = empty(device, (2, channels, cuts.shape[1] + 1, max(1, -(-n // size))), np.float64)
    kernel(device, "sums")(rows, size, on_device_of(rows, cuts), on_device_of(rows, shift), power, out)
    return to_host(out)


class Places(NamedTuple):
    """A place in a sorted row for each threshold: int64, then float64.

    `counts` values are less than the threshold, `totals` is their sum; `before` and `at` are the values next to it, the
    nearest one twice where it is beyond an end.
    """

    counts: Array
    totals: Array
    before: Array
    at: Array


class SortedRows:
    """A copy of rows [channels n], n at least 1, in ascending order, where sums of runs need no pass over the values.

    `values` are on the device of the rows; all else is on the host.
    """

    def __init__(self, rows: Array) -> None:
        self.values = np.sort(rows, axis=1)
        self.length = rows.shape[1]
        blocks = _block_sums(self.values, _SHORT)[1, :, 0]
        self._sums = np.pad(blocks, ((0, 0), (1, 0))).cumsum(axis=1)
        self.total = self._sums[:, -1]

    @cached_property  # a copy from a GPU waits for it
    def ends(self) -> tuple[Array, Array]:
        """float64: the smallest and the largest value of each row."""
        return self.column(0), self.column(-1)

    def column(self, i: int) -> Array:
        """float64: the i-th value of each row."""
        return to_host(self.values[:, i]).astype(np.float64)

    def below(self, thresholds: Array, rows: Array | None = None) -> Places:
        """Find the places of thresholds [rows any], in all rows or those numbered `rows`.

        >>> SortedRows(np.array([[3.0, 1, 2]])).below(np.array([[0, 2, 9]]))[:2]
        (array([[0, 1, 3]]), array([[0., 1., 6.]]))
        """
        numbers = np.arange(len(self.values)) if rows is None else rows
        exact = np.ascontiguousarray(thresholds, np.float64)
        device = device_of(self.values)
        out = empty(device, (4, *exact.shape), np.float64)
        operands = (on_device_of(self.values, a) for a in (numbers, exact))
        kernel(device, "below")(self.values, _SHORT, *operands, out)
        count, rest, before, at = to_host(out)
        places = count.astype(np.int64)
        return Places(places, self._sums[numbers[:, None], places // _SHORT] + rest, before, at)

    def sample(self, most: int) -> Array:
        """Return the middles of n <= most runs of each row that are as long as each other, or nearly: [channels n].

        >>> SortedRows(np.array([[3.0, 1, 2, 5, 4, 6]])).sample(3)
        array([[2., 4., 6.]])
        """
        n = min(self.length, most)
        middles = (2 * np.arange(n) + 1) * self.length // (2 * n)
        return self.values.take(on_device_of(self.values, middles), axis=1)
