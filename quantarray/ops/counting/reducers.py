"""Results made of counts: sums, moments, products, extremes, and the counts themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..words.level_tables import LevelTable, mapped
from .histograms import Counts, coefficients

Table = Array | LevelTable
_WAITING = 1 << 18  # values of blocks that wait until they are merged with those before


class _Histogram:
    """A job that needs how often each code occurs."""

    def __init__(self, table: Table, dtype: Any) -> None:
        self.table = table
        self.dtype = np.dtype(dtype)
        self.sets = set(range(1, len(table)))

    def finish(self, total: Array) -> Array:
        return total.astype(self.dtype)


class IntegerSum(_Histogram):
    """An exact sum of an int64 table, of those sets that it needs; divided by `over` if that is given."""

    def __init__(self, table: Table, dtype: Any, over: int | None = None) -> None:
        super().__init__(mapped(coefficients, table), dtype)
        parts = self.table.blocks() if isinstance(self.table, LevelTable) else [self.table]
        needed = np.logical_or.reduce([part.reshape(len(part), -1).any(axis=1) for part in parts])
        self.sets = set((1 + np.flatnonzero(needed[1:])).tolist())
        self._over = over

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape, np.int64)

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        # In int64 with wraps: whatever the terms are, the sum is right where it fits
        for s in (0, *sorted(self.sets)):
            total = total + (counts[s] * table[s]).sum(axis=-1)
        return total

    def finish(self, total: Array) -> Array:
        return (total if self._over is None else total / np.float64(self._over)).astype(self.dtype)


class PlaneProducts:
    """An exact sum of u * v, of two terms (first plane, planes, base, step) whose planes are counted side by side.

        sum u * v = sum over sets S of coefficient[S] * count[S],   S empty, a plane of one, or one plane of each

    A table of all pairs of codes would have 2**64 entries for terms of 32 planes; these are (32 + 1)**2.
    """

    def __init__(self, u: Array, v: Array, ndim: int) -> None:
        (_, planes, base, step), (_, others, low, by) = u.tolist(), v.tolist()
        ours = [(0, base), *((1 << i, step << i) for i in range(planes))]
        theirs = [(0, low), *((1 << j, by << j) for j in range(others))]
        self._coefficients = {s | t << planes: _wrapped(a * b) for s, a in ours for t, b in theirs}
        self.sets = {s for s, value in self._coefficients.items() if s and value}
        self.table: Table = np.zeros((1,) * (1 + ndim), np.int64)
        self.dtype = np.dtype(np.int64)

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape, np.int64)

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        for s in (0, *sorted(self.sets)):  # in int64 with wraps, as of `IntegerSum`
            total = total + (counts[s] * self._coefficients[s]).sum(axis=-1)
        return total

    def finish(self, total: Array) -> Array:
        return total


def _wrapped(number: int) -> np.int64:
    """Wrap an integer modulo 2**64."""
    return np.uint64(number % 2**64).astype(np.int64)


class RealSum(_Histogram):
    """A sum of a float64 table in float64: of each run, codes in ascending order; then of runs, in C order."""

    def __init__(self, table: Table, dtype: Any, over: int | None = None) -> None:
        super().__init__(table, dtype)
        self._over = over

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape)

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        parts = np.zeros(counts[0].shape)
        for n, value in zip(counts.codes, table, strict=True):
            with np.errstate(invalid="ignore"):
                parts += np.where(n > 0, n * value, 0)  # a value that does not occur may be infinite
        # accumulate adds one after the other; sum would not
        return np.add.accumulate(np.concatenate([total[..., None], parts], axis=-1), axis=-1)[..., -1]

    def finish(self, total: Array) -> Array:
        return (total if self._over is None else total / self._over).astype(self.dtype)


class RootOfSum(RealSum):
    """(sum of a float64 table) ** (1 / order), rounded to float32 once. The root is taken of a block at a time."""

    def __init__(self, table: Table, order: float) -> None:
        super().__init__(table, np.float32)
        self._power = 1 / order

    def finish(self, total: Array) -> Array:
        with np.errstate(divide="ignore"):
            return (total**self._power).astype(self.dtype)


class Variance(_Histogram):
    """A mean squared distance from the mean: of each block by its counts, blocks joined by Chan's formula.

    sum (v - mean)^2 of two blocks is that of each, plus (difference of the means)^2 * n_a * n_b / (n_a + n_b).
    Chan, Golub and LeVeque, "Algorithms for computing the sample variance", The American Statistician 37 (1983).
    """

    def __init__(self, table: Table, dtype: Any, over: float, root: bool) -> None:
        super().__init__(mapped(_float64, table), dtype)
        self._over, self._root = over, root

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.zeros((3, *shape))

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        n, mean, squares = total
        codes = counts.codes
        more = counts[0].sum(axis=-1)
        # Distances from one level first: sums of large levels with small differences would lose these
        first = table[0, ..., 0]
        distance = table - first[..., None]
        shift = (codes * distance).sum(axis=(0, -1)) / more
        spread = (codes * np.square(distance - shift[..., None])).sum(axis=(0, -1))
        both, apart = n + more, first + shift - mean
        squares = squares + spread + apart * apart * (n * more / both)
        return np.stack(np.broadcast_arrays(both, mean + apart * (more / both), squares))

    def finish(self, total: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = total[2] / np.float64(self._over)
            return np.asarray((np.sqrt(variance) if self._root else variance).astype(self.dtype))


class Extreme(_Histogram):
    """A largest value that occurs, or the smallest."""

    def __init__(self, table: Table, dtype: Any, largest: bool) -> None:
        super().__init__(table if largest else mapped(np.negative, table), dtype)
        self._largest, self._kind = largest, self.table.dtype

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self._least(), self._kind)

    def _least(self) -> Any:
        return -np.inf if self._kind.kind == "f" else np.iinfo(np.int64).min

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        for n, value in zip(counts.codes, table, strict=True):
            total = np.maximum(total, np.where(n > 0, value, self._least()).max(axis=-1))
        return total

    def finish(self, total: Array) -> Array:
        return (total if self._largest else -total).astype(self.dtype)


class Product(_Histogram):
    """A product of an int64 table, which the caller knows to fit."""

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.ones(shape, np.int64)

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        for n, value in zip(counts.codes, table, strict=True):
            total = total * np.power(value, n).prod(axis=-1)
        return total


class Occurrences(_Histogram):
    """A count of how often each of the first `n` codes occurs, [codes kept]."""

    def __init__(self, planes: int, n: int, ndim: int) -> None:
        super().__init__(np.zeros((2**planes, *(1,) * ndim), np.int64), np.int64)
        self._n = n

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.zeros((self._n, *shape), np.int64)

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        return np.asarray(total + counts.codes[: self._n].sum(axis=-1))


class Tally(_Histogram):
    """A count of how often each value occurs among all elements, which `merged` tells."""

    def __init__(self, table: Table, kind: Any) -> None:
        super().__init__(table, np.int64)
        self._kind = np.dtype(kind)  # of values, which it holds exactly
        self._values, self._counts = np.zeros(0, kind), np.zeros(0, np.int64)
        self._waiting: list[tuple[Array, Array]] = []

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape, np.int64)

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        codes = counts.codes
        seen = codes > 0
        self._waiting.append(_totals(np.broadcast_to(table, codes.shape)[seen].astype(self._kind), codes[seen]))
        # Not each by itself: of millions of values each block would copy all
        if sum(len(v) for v, _ in self._waiting) > max(_WAITING, len(self._values) // 4):
            self.merged()
        return total

    def merged(self) -> tuple[Array, Array]:
        """(values ascending, int64 counts)."""
        if self._waiting:
            values, number = _totals(*map(np.concatenate, zip(*self._waiting, strict=True)))
            self._waiting = []
            place = np.searchsorted(self._values, values)
            old = place < len(self._values)
            old[old] = self._values[place[old]] == values[old]
            self._counts[place[old]] += number[old]
            place, new = place[~old], ~old
            self._values = np.insert(self._values, place, values[new])
            self._counts = np.insert(self._counts, place, number[new])
        return self._values, self._counts


def _totals(values: Array, counts: Array) -> tuple[Array, Array]:
    """Return the different values, ascending, and the sum of the counts of each."""
    unique, place = np.unique(values, return_inverse=True)
    totals = np.zeros(len(unique), np.int64)
    np.add.at(totals, place, counts)
    return unique, totals


def _float64(table: Array) -> Array:
    return table.astype(np.float64)
