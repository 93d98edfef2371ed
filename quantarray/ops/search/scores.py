"""Scores of products, by which `top_k` sorts: computed of a block of rows, or told to the kernel `add_products`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array

SUM, ESTIMATE, DISTANCE, COSINE = range(4)  # metrics of the kernel `add_products`


class Product(NamedTuple):
    """Compute products [queries rows] of queries and packed rows: `function(rows)`, divided by float64[queries].

    codes: int8[queries d] and scales float32[queries 1], with which a kernel computes these products from rows' words.
    whole: products are integers that int32 has, and need no scales.
    """

    function: Callable[[Any], Array]
    divisors: Array | None = None
    codes: tuple[Array, Array] | None = None
    whole: bool = False

    def __call__(self, rows: Any) -> Array:
        products = self.function(rows)
        if self.divisors is None:
            return products
        divided: Array = (products.astype(np.float64) / self.divisors[:, None]).astype(np.float32)
        return divided


class Scores(NamedTuple):
    """Compute scores of packed rows, of their products p and numbers a of the query and b of the row.

    p + a for SUM, a + b**2 - 2 p for ESTIMATE, max(a + b - 2 p, 0) for DISTANCE, p / (a b) for COSINE, or 0 where a b
    is 0. Without `of_query` SUM is p itself.
    """

    product: Product
    metric: int = SUM
    of_query: Array | None = None  # [queries]
    of_row: Array | None = None  # [rows]
    codes: Callable[[Any], Any] = lambda rows: rows  # of rows

    def __call__(self, rows: Any, first: int = 0) -> Array:
        """Compute scores [queries rows] of rows from `first` on."""
        p = self.product(self.codes(rows))
        if self.of_query is None:
            return p
        a, scores = self.of_query[:, None], p + self.of_query[:, None] if self.metric == SUM else p
        if self.of_row is not None:
            b = self.of_row[None, first : first + len(rows)]
            exact = p.dtype.kind == a.dtype.kind == b.dtype.kind == "i"
            if self.metric == COSINE:
                scores = ratio(p, a * b)
            elif self.metric == ESTIMATE:
                scores = a + np.square(b.astype(np.float64)) - 2 * p
            else:
                scores = np.maximum(a + b - 2 * p.astype(np.int64 if exact else np.float64), 0)
        return scores

    @property
    def dtype(self) -> Any:
        """Return the type of scores of products that are floats, or whole."""
        if self.of_query is None:
            return np.int32 if self.product.whole else np.float32
        return np.int64 if self.product.whole and self.metric == DISTANCE else np.float64

    def at(self, query: int, ids: Array) -> Scores:
        """Return the scores of one query for some of the rows."""
        codes = self.product.codes
        alone = codes and (codes[0][query : query + 1], codes[1][query : query + 1])
        of_query = self.of_query if self.of_query is None else self.of_query[query : query + 1]
        of_row = self.of_row if self.of_row is None else self.of_row[ids]
        return self._replace(product=self.product._replace(codes=alone), of_query=of_query, of_row=of_row)

    def terms(self, queries: int, first: int, rows: int) -> tuple[Array, Array, int]:
        """Return numbers of so many queries and rows, and the metric, as `add_products` takes them."""
        of_query = np.zeros(queries) if self.of_query is None else self.of_query.astype(np.float64, copy=False)
        of_row = np.empty(0) if self.of_row is None else self.of_row[first : first + rows]
        if of_row.dtype != np.float32:
            of_row = of_row.astype(np.float64, copy=False)
        return of_query, of_row, self.metric


def ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator in float64, and 0 for 0 / 0."""
    return np.divide(numerator, denominator, out=np.zeros(denominator.shape), where=denominator != 0)
