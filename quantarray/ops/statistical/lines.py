"""Arrays as lines along an axis, for kernels that need elements in order (`quantarray/cpu/reduction/scan.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.blocks import SIZE as VALUES
from ...arrays.blocks import blocks
from ...backends.registry import contiguous, empty, kernel, namespace, zeros
from ...core.dtypes import Array
from ...core.format import WORD_BITS, word_count
from ..manipulation.indexing import index
from ..manipulation.views import moveaxis
from ..words.bit_rows import words_axis
from ..words.conversion import dequantize
from ..words.level_tables import has_many_levels, parts


class Lines:
    """A view of the lines of `q` along an axis: words uint64[planes rows folds words], and the tables that codes go
    through."""

    def __init__(self, q: QuantArray, axis: int) -> None:
        self.q, self.axis = q, axis
        self.lanes = axis != q.axis
        outer = [d for d in range(q.ndim) if d != q.axis]
        self._kept = [d for d in outer if d != axis]
        self._outer = self._kept + [axis] * self.lanes
        self._place = [d if d < q.axis else d - 1 for d in self._outer]
        self.length = q.shape[q.axis]
        self.folds = q.shape[axis] if self.lanes else 1
        self.rows = math.prod(q.shape[d] for d in self._kept)
        self.group = q.group or max(self.length, 1)

    def _words(self) -> Array:
        words = self.q.words.transpose(0, *(1 + d for d in self._place), self.q.words.ndim - 1)
        return contiguous(words).reshape(self.q.bits, self.rows, self.folds, words.shape[-1])

    def _tables(self, table: Array) -> tuple[Array, Array]:
        """Reshape a table [codes, *q's axes] to [tables groups codes], and which one each fold of each row has."""
        by_row = table.transpose(*(1 + d for d in self._outer), 1 + self.q.axis, 0)
        dims, full = by_row.shape[:-2], tuple(self.q.shape[d] for d in self._outer)
        row = np.arange(math.prod(dims)).reshape(dims)
        row = np.broadcast_to(row, full).reshape(-1) if row.size > 1 else row.reshape(-1)
        return np.ascontiguousarray(by_row.reshape(math.prod(dims), *by_row.shape[-2:])), row.astype(np.int64)

    def argmax(self, table: Array, floor: float) -> Array:
        """Find the place of the first largest value above `floor` of each line, int64 [axes that are left]."""
        tables, row = self._tables(table)
        out = empty(self.q.device, (self.rows, self.length if self.lanes else 1), np.int64)
        kernel(self.q.device, "argmax")(
            self._words(), self.length, tables, row, self.group, floor, self.lanes, out
        )  # fmt: skip
        shape = tuple(self.q.shape[d] for d in self._kept)
        if not self.lanes:
            return out.reshape(shape)
        at = sum(d < self.q.axis for d in self._kept)
        places: Array = namespace(self.q.device).moveaxis(out.reshape(*shape, self.length), -1, at)
        return places

    def fill(self, name: str, table: Array, out: Array) -> None:
        """`cumulate` or `argsort` to out [rows folds length]."""
        tables, row = self._tables(table)
        kernel(self.q.device, name)(self._words(), self.length, tables, row, self.group, self.lanes, out)

    def sort(self, order: Array) -> Array:
        """Sort the codes of each line in the order of order[codes, *q's axes]; return words."""
        tables, row = self._tables(order)
        words = self._words()
        out = zeros(self.q.device, words.shape)
        kernel(self.q.device, "sort")(words, self.length, tables, row, self.group, self.lanes, out)
        sorted_words = out.reshape(self.q.bits, *(self.q.shape[d] for d in self._outer), words.shape[-1])
        back = np.argsort(self._place).tolist()
        return sorted_words.transpose(0, *(1 + d for d in back), sorted_words.ndim - 1)

    def in_order(self, out: Array) -> Array:
        """out [rows folds length], perhaps one step longer, in the axes of q."""
        order = [*self._outer, self.q.axis]
        steps = out.shape[1:] if self.lanes else out.shape[2:]
        result = out.reshape(*(self.q.shape[d] for d in self._kept), *steps)
        return result.transpose(np.argsort(order).tolist())


def steps(lines: Lines, more: int, dtype: Any) -> tuple[Array, Array]:
    """Allocate an array [rows folds length] with `more` steps of zeros at the front of each line; return it and the
    part after them."""
    shape = (lines.rows, lines.folds + more * lines.lanes, lines.length + more * (not lines.lanes))
    out = (zeros if more else empty)(lines.q.device, shape, dtype)
    return out, (out[:, more:] if lines.lanes else out[:, :, more:])


def by_parts(q: QuantArray, axis: int, f: Callable[[QuantArray], Array], removes: bool = False) -> Array:
    """f(q), an array with q's axes, or all but `axis`, whose lines along `axis` do not depend on each other.

    In parts where the levels of all constants would be a large table.
    """
    keys, out = parts(q, axis), None
    if len(keys) == 1:
        return f(q)
    for key in keys:
        part, at = f(index(q, key)), len(key) - 1 - int(removes and axis < len(key) - 1)
        if out is None:
            out = empty(q.device, (*part.shape[:at], q.shape[len(key) - 1], *part.shape[at + 1 :]), part.dtype)
        out[(slice(None),) * at + key[-1:]] = part
    assert out is not None
    return out


def words_by_parts(q: QuantArray, bits: int, f: Callable[[QuantArray], Array], uncut: int | None = None) -> Array:
    """f(q), words of so many bits packed as q is, in parts where the levels of all constants would be a large table."""
    keys = parts(q, uncut)
    if len(keys) == 1:
        return f(q)
    out = empty(q.device, (bits, *q.words.shape[1:]))
    for key in keys:
        d, cut = len(key) - 1, key[-1]
        if d == q.axis:
            out[..., cut.start // WORD_BITS : word_count(cut.stop)] = f(index(q, key))
        else:
            out[(slice(None),) * words_axis(q, d) + (cut,)] = f(index(q, key))
    return out


def by_values(q: QuantArray, axis: int, f: Callable[[Array], Array]) -> Array | None:
    """f of the values, line by line along `axis`, where constants vary along it so much that tables would be large.

    None elsewhere. f takes [.., n], and returns as many lines of any length.
    """
    if not has_many_levels(q, axis):
        return None
    rows = moveaxis(q, axis, -1)
    units = [(q.group or 1) if d == rows.axis else 1 for d in range(q.ndim - 1)]  # no slice cuts through a group
    lines = max(1, VALUES // max(1, q.shape[axis] * math.prod(units)))
    out: Array | None = None
    for block in blocks(tuple(-(-n // unit) for n, unit in zip(rows.shape, units, strict=False)), lines):
        key = tuple(slice(s.start * u, min(s.stop * u, n)) for s, u, n in zip(block, units, rows.shape, strict=False))
        result = f(dequantize(index(rows, key)))
        if out is None:
            out = empty(q.device, (*rows.shape[:-1], result.shape[-1]), result.dtype)
        out[key] = result
    return None if out is None else np.moveaxis(out, -1, axis)
