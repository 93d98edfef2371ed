"""Select the best of many scores, a block of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.registry import contiguous, kernel
from ...core.dtypes import Array
from ..products.float_rows import Words
from .scores import Scores

_FAR = np.iinfo(np.int64).max
_NOT_SIGN = _FAR  # the bits of a float64 that have its magnitude


class Best:
    """Store the k best scores of each query so far and their rows; of equal scores those of the lower rows.

    The best are the smallest, or with `sign` -1 the largest. `rows` are searched in all.
    """

    def __init__(self, queries: int, rows: int, k: int, sign: int = 1) -> None:
        self._k, self._sign, self._flip = k, sign, 0
        self._pairs: Array = np.empty((2, queries, min(2 * k, rows)), np.int64)
        self._counts, self._limits = np.zeros(queries, np.int64), np.full(queries, _FAR)
        self._dtype: np.dtype[Any] = np.dtype(np.int64)

    def add(self, scores: Array, first: int) -> None:
        """Look at the scores [queries n] of rows from `first` on, which come after all rows that were added before."""
        self._dtype, of_floats = scores.dtype, scores.dtype.kind == "f"
        self._flip = _NOT_SIGN if of_floats else 0
        kind = np.float64 if of_floats else np.int64
        signed = (np.add if self._sign > 0 else np.subtract)(kind(0), scores, dtype=kind, order="C")  # -0 becomes 0
        if self._k and signed.size:
            operands = self._flip, first, self._k, self._counts, self._limits, self._pairs
            kernel("cpu", "add_candidates")(signed.view(np.int64), *operands)

    def add_products(self, scores: Scores, rows: Any, first: int) -> None:
        """Look at the scores of rows from `first` on, a block, without an array of them where float32 has products."""
        products = scores.product.function(scores.codes(rows))
        if products.dtype.kind != "f" and scores.product.divisors is None and not scores.product.whole:
            self.add(scores(rows, first), first)
            return
        self._dtype, self._flip = np.dtype(scores.dtype), _NOT_SIGN
        if not (self._k and products.size):
            return
        across, asked = not products.flags.c_contiguous, len(products)
        laid_out = contiguous(products.T if across else products)
        divisors = np.empty(0) if scores.product.divisors is None else scores.product.divisors
        state = first, self._k, self._counts, self._limits, self._pairs
        kernel("cpu", "add_products")(laid_out, across, divisors, *scores.terms(asked, first, len(rows)), *state)

    def result(self) -> tuple[Array, Array]:
        """Return the scores [queries k], of the dtype that was added, and rows, best first."""
        out = np.empty((2, len(self._counts), self._k), np.int64)
        if out.size:
            kernel("cpu", "least_candidates")(self._counts, self._pairs, out)
        keys = _floats(out[0]) if self._flip else out[0]
        return (keys if self._sign > 0 else -keys).astype(self._dtype, copy=False), out[1]


def best_products(scores: Scores, words: Words, k: int, sign: int) -> tuple[Array, Array]:
    """Return the k best scores [queries k] and their rows, 1 or more, of products of codes and the words of rows."""
    assert scores.product.codes is not None
    codes, divisors = scores.product.codes
    keys, rows = out = np.empty((2, len(codes), k), np.int64)
    terms = scores.terms(len(codes), 0, words.words.shape[1])
    kernel("cpu", "nearest_products")(codes, divisors.reshape(-1), *words, *terms, out)
    values = _floats(keys) if sign > 0 else -_floats(keys)
    return values.astype(scores.dtype, copy=False), rows


def _floats(keys: Array) -> Array:
    """Return the float64 numbers whose keys these are."""
    numbers: Array = (keys ^ ((keys >> 63) & _NOT_SIGN)).view(np.float64)
    return numbers
