"""Select the best of many scores, a block of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.registry import contiguous, kernel
from ...core.dtypes import Array
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
        """Look at the scores of rows from `first` on, a block, without an array of them where products are floats."""
        products = scores.product.function(scores.codes(rows))
        if products.dtype.kind != "f" and scores.product.divisors is None:
            self.add(scores(rows), first)
            return
        self._dtype = np.dtype(np.float32) if scores.of_query is None else np.dtype(np.float64)
        self._flip = _NOT_SIGN
        if not (self._k and products.size):
            return
        across = not products.flags.c_contiguous
        terms = scores.terms(len(products), rows)
        laid_out = contiguous(products.T if across else products)
        state = first, self._k, self._counts, self._limits, self._pairs
        kernel("cpu", "add_products")(laid_out, across, *terms, scores.metric, *state)

    def result(self) -> tuple[Array, Array]:
        """Return the scores [queries k], of the dtype that was added, and rows, best first."""
        out = np.empty((2, len(self._counts), self._k), np.int64)
        if out.size:
            kernel("cpu", "least_candidates")(self._counts, self._pairs, out)
        keys = out[0]
        scores: Array = (keys ^ ((keys >> 63) & self._flip)).view(np.float64) if self._flip else keys
        return (scores if self._sign > 0 else -scores).astype(self._dtype, copy=False), out[1]
