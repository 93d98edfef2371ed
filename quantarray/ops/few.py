"""Matrix products with few outputs of many elements, counted where the words lie.

A kernel's layout of the weights has whole blocks of 32 lanes, so that of one output takes 32 times its words. Where
that is more than both operands together, pairs of planes are counted as reductions count them (`counting.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..array import QuantArray
from ..device import asnumpy, empty, namespace
from ..dtypes import Array
from ..kernels import Left
from ..thresholds import Thresholds
from . import products
from .counting import Field, fold
from .jobs import IntegerSum
from .lanes import LANES, GroupLanes
from .operand import Operand

_SMALL = 1 << 22  # bytes of a layout that nobody misses


def pays(x: Any, w: QuantArray, b: Operand) -> bool:
    """True where a layout of w, which is b lowered, takes more memory than x and w do."""
    layout = len(b.words) * GroupLanes(w.shape[0]).blocks * LANES * b.words.shape[-1] * b.words.itemsize
    return bool(layout > x.nbytes + w.nbytes + _SMALL)


class FewOutputs(NamedTuple):
    """A checked product with w [o k], lowered as `b`, whose constants do not vary along k; called as a `Call`."""

    device: str
    b: Operand
    k: int
    bias: Array | None
    requantize: Thresholds | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __call__(self, x: Left, out: Array | None = None) -> Any:
        """A dense array, which is `out` if it is given; or a QuantArray of thresholded codes."""
        found = self._real(x) if self.dtype == np.float32 else self._sums(x, 0, 0)
        if self.bias is not None:
            found = found + self.bias
        made = empty(self.device, self.shape, self.dtype) if out is None else out
        made.reshape(-1, self.shape[-1])[...] = namespace(self.device).asarray(found)
        return made if self.requantize is None else self.requantize(made)

    def _real(self, x: Left) -> Array:
        """float64 [rows o] without bias, in the order of docs/decisions/0001."""
        scale, offset = self.b.constants(2)
        w_scale, w_offset = scale[..., 0], offset[:, 0]
        x_scale, x_offset = x.scale[0], x.offset[0]
        x_terms = products.term_sums(x.terms, self.k, self._planes(x.words))
        w_terms = products.term_sums(self.b.terms, self.k, self._planes(self.b.words))
        value: Any = np.zeros((1, 1))
        for t in range(len(x.terms)):
            for s in range(len(self.b.terms)):
                value = value + (x_scale[t] * w_scale[s]) * self._sums(x, t, s)
        for t in range(len(x.terms)):
            value = value + (x_scale[t] * w_offset) * x_terms[t]
        for s in range(len(self.b.terms)):
            value = value + (x_offset * w_scale[s]) * w_terms[s, :, 0]
        return np.asarray(value + (x_offset * w_offset) * self.k + 0.0)

    def _sums(self, x: Left, t: int, s: int) -> Array:
        """int64 [rows o]: sums of products of term t of x and term s of w."""
        (i, planes, base, step), (j, others, low, by) = x.terms[t].tolist(), self.b.terms[s].tolist()
        ours, theirs = self._planes(x.words)[i : i + planes], self._planes(self.b.words)[j : j + others]
        codes = np.arange(2 ** (planes + others))
        table = (base + step * (codes % 2**planes)) * (low + by * (codes >> planes))
        shape = (ours.shape[1], theirs.shape[1], self.k)
        field = Field(self.device, planes + others, shape, 2, (ours, theirs.swapaxes(1, 2)))
        return np.asarray(asnumpy(fold(field, (2,), None, [IntegerSum(table.reshape(-1, 1, 1, 1), np.int64)])[0]))

    def _planes(self, words: Array) -> Array:
        """Words [planes rows 1 word]."""
        return words.reshape(len(words), -1, 1, self.b.words.shape[-1])
