"""Matrix products with few outputs of many elements, counted in place.

A kernel's layout of the weights has whole blocks of 32 lanes, so one output takes 32 times its words. If that is more
than both operands together, pairs of planes are counted as reductions count them (`counting/`): at most 1,088 counts a
result, of 32 planes each, and 1 MiB of words of operands whose planes are not their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import empty, namespace, to_host
from ...core.dtypes import Array
from ...core.format import WORD, WORD_BITS, word_count
from ..counting.histograms import Field, fold
from ..counting.reducers import PlaneProducts
from . import epilogue
from .lanes import LANES, GroupLanes
from .operand import Operand, lower

_SMALL = 1 << 22  # bytes of a layout that nobody misses
_WORDS = 1 << 17  # of both operands that are recoded at a time: 1 MiB


def refusal(x: Any, w: QuantArray, b: Operand, part: int) -> str:
    """Say why w, lowered as b, with the same constants over `part` elements, is not counted in place; else ""."""
    if part < w.shape[1]:
        return "constants vary along the contraction"
    layout = b.planes * GroupLanes(w.shape[0]).blocks * LANES * w.words.shape[-1] * WORD.itemsize
    return (
        "" if layout > x.nbytes + w.nbytes + _SMALL else f"a layout of w, {layout:,} bytes, is no larger than x and w"
    )


class FewOutputs(NamedTuple):
    """A checked product with w [o k], whose constants do not vary along k."""

    device: str
    w: QuantArray
    bias: Array | None
    requantize: Thresholds | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __call__(self, x: QuantArray, out: Array | None = None) -> Any:
        """Compute a dense array, in `out` if it is passed; or a QuantArray of thresholded codes."""
        sums = self._real(x) if self.dtype == np.float32 else sum(self._sums(a, b, 0, 0) for a, b, _ in self._cuts(x))
        if self.bias is not None:
            sums = sums + self.bias
        result = empty(self.device, self.shape, self.dtype) if out is None else out
        result.reshape(-1, self.shape[-1])[...] = namespace(self.device).asarray(sums)
        return result if self.requantize is None else self.requantize(result)

    def _cuts(self, x: QuantArray) -> Iterator[tuple[Operand, Operand, int]]:
        """Yield both operands lowered, stretch by stretch of k, and the elements of each stretch."""
        k, a, b = self.w.shape[1], lower("linear", "x", x), lower("linear", "w", self.w)
        step = word_count(k)
        if a.recoded or b.recoded:
            each = a.planes * math.prod(self.shape[:-1]) + b.planes * self.shape[-1]
            step = min(step, max(1, _WORDS // each))
        for start in range(0, k, step * WORD_BITS):
            cut = slice(start, min(start + step * WORD_BITS, k))
            parts = a._replace(source=x[..., cut]), b._replace(source=self.w[:, cut])
            yield *parts, cut.stop - cut.start

    def _real(self, x: QuantArray) -> Array:
        """float64 [rows o] without bias, in the order of docs/decisions/0001."""
        a, b = lower("linear", "x", x), lower("linear", "w", self.w)
        (x_scale, x_offset), (w_scale, w_offset) = a.constants(x.ndim), b.constants(2)
        x_scale, x_offset = (np.broadcast_to(c, (*c.shape[: -x.ndim], *x.shape[:-1], 1)) for c in (x_scale, x_offset))
        x_scale, x_offset = x_scale.reshape(len(a.terms), math.prod(x.shape[:-1]), 1), x_offset.reshape(-1, 1)
        w_scale, w_offset = w_scale[..., 0], w_offset[:, 0]
        pairs = [(t, s) for t in range(len(a.terms)) for s in range(len(b.terms))]
        sums: dict[tuple[int, int], Any] = dict.fromkeys(pairs, 0)
        x_terms: Any = 0
        w_terms: Any = 0
        for p, q, elements in self._cuts(x):
            x_terms = x_terms + _term_sums(p, elements)
            w_terms = w_terms + _term_sums(q, elements)
            for t, s in pairs:
                sums[t, s] = sums[t, s] + self._sums(p, q, t, s)
        value: Any = np.zeros((1, 1))
        for t, s in pairs:
            value = value + (x_scale[t] * w_scale[s]) * sums[t, s]
        for t in range(len(a.terms)):
            value = value + (x_scale[t] * w_offset) * x_terms[t]
        for s in range(len(b.terms)):
            value = value + (x_offset * w_scale[s]) * w_terms[s, :, 0]
        return np.asarray(value + (x_offset * w_offset) * self.w.shape[1] + 0.0)

    def _sums(self, a: Operand, b: Operand, t: int, s: int) -> Array:
        """int64 [rows o]: sums of products of term t of a and term s of b."""
        (i, planes, *_), (j, others, *_) = a.terms[t].tolist(), b.terms[s].tolist()
        ours, theirs = _planes(a)[i : i + planes], _planes(b)[j : j + others]
        length = a.source.shape[-1]
        field = Field(self.device, planes + others, (ours.shape[1], theirs.shape[1], length), 2,
                      (ours, theirs.swapaxes(1, 2)))  # fmt: skip
        return np.asarray(to_host(fold(field, (2,), None, [PlaneProducts(a.terms[t], b.terms[s], 3)])[0]))


def _planes(a: Operand) -> Array:
    """Return words [planes rows 1 word]."""
    words = a.words
    return words.reshape(len(words), -1, 1, words.shape[-1])


def _term_sums(a: Operand, elements: int) -> Array:
    """int64 [terms rows 1]: the sum of each term along a row."""
    return epilogue.term_sums(a.terms, elements, _planes(a))
