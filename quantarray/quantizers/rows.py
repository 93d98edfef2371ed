"""Rows in ascending order: how many values are below a threshold, and their sum, without a pass over them.

`SortedRows` has both for many thresholds at once in NumPy's own search; `Ascending` is for rows of many millions.
"""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array

_BLOCKS = 1 << 16


class SortedRows:
    """A copy of rows [channels n] in ascending order: places of thresholds in O(log n), sums between places in O(1).

    `sums[c, i]` is the sum of the i smallest values of row c.
    """

    def __init__(self, rows: Array) -> None:
        self.values = np.sort(rows, axis=1)
        self.sums = np.zeros((rows.shape[0], rows.shape[1] + 1))
        np.cumsum(self.values, axis=1, out=self.sums[:, 1:])
        self._keys = _row_keys(np.arange(len(rows)), self.values).reshape(-1)

    def below(self, thresholds: Array, rows: Array | None = None) -> Array:
        """Count the values below each threshold, in all rows or those numbered `rows`: int64 [rows ..]."""
        numbers = np.arange(len(self.values)) if rows is None else rows
        places = np.searchsorted(self._keys, _row_keys(numbers, thresholds))
        return np.asarray(places - numbers[:, None] * self.values.shape[1])


def _row_keys(rows: Array, values: Array) -> Array:
    """Return complex numbers, which NumPy orders by (row, value): one search then serves all rows."""
    keys = np.empty(values.shape, np.complex128)
    keys.real, keys.imag = rows[:, None], values
    return keys


class Ascending:
    """A copy of rows in ascending order that tells `qem` how many elements are below a threshold, and their sum.

    Sorting once makes a half-step a search for 2**bits - 1 thresholds and not a pass over the values. Sums are in
    float64, and of long rows kept at the end of every block only: a cumulative sum takes longer than the sort.
    """

    def __init__(self, x: Array) -> None:
        """x: finite [channels elements], at least one element."""
        exact = x.dtype in (np.float32, np.float64)
        self._rows = np.sort(x if exact else x.astype(np.float64), axis=1)
        self.length = x.shape[1]
        self._block = max(1, self.length // _BLOCKS)
        whole = self.length // self._block * self._block
        blocks = self._rows[:, :whole].reshape(len(x), -1, self._block).sum(axis=2, dtype=np.float64)
        self._sums = np.pad(blocks, ((0, 0), (1, 0))).cumsum(axis=1)
        self.squares = np.einsum("ij,ij->i", self._rows, self._rows, dtype=np.float64)
        self.total = self._sum(np.full((len(x), 1), self.length))[:, 0]

    @property
    def ends(self) -> tuple[Array, Array]:
        """Return the smallest and the largest element of each row."""
        return self._rows[:, 0], self._rows[:, -1]

    def sample(self, most: int) -> Array:
        """Float64 [channels n], n <= most: the middles of n runs of each row that are as long as each other, or nearly.

        >>> Ascending(np.array([[3.0, 1, 2, 5, 4, 6]])).sample(3)
        array([[2., 4., 6.]])
        """
        n = min(self.length, most)
        return self._rows[:, (2 * np.arange(n) + 1) * self.length // (2 * n)].astype(np.float64)

    def below(self, thresholds: Array) -> tuple[Array, Array]:
        """Count the elements less than each threshold [channels any], and sum them.

        >>> Ascending(np.array([[3.0, 1, 2]])).below(np.array([[0, 2, 9]]))
        (array([[0, 1, 3]]), array([[0., 1., 6.]]))
        """
        first = np.arange(len(self._rows))[:, None] * self.length - 1
        count = np.zeros(thresholds.shape, np.int64)
        for k in reversed(range(self.length.bit_length())):
            more = np.minimum(count + 2**k, self.length)
            count = np.where(self._rows.reshape(-1)[first + more] < thresholds, more, count)
        return count, self._sum(count)

    def _sum(self, count: Array) -> Array:
        """Sum each row's first elements: whole blocks, and the rest one by one."""
        block = np.minimum(count // self._block, self._sums.shape[1] - 1)
        place = np.arange(self._block) if self._block > 1 else np.arange(0)
        at = block[:, :, None] * self._block + place
        inside = at < count[:, :, None]
        row = np.arange(len(self._rows))[:, None, None]
        rest = np.where(inside, self._rows[row, np.minimum(at, self.length - 1)], 0).sum(axis=2, dtype=np.float64)
        return np.asarray(np.take_along_axis(self._sums, block, 1) + rest)
