"""Scores of products, by which `top_k` sorts: computed of a block of rows, or told to the kernel `add_products`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array

SUM, ESTIMATE, DISTANCE, COSINE = range(4)  # metrics of the kernel `add_products`


class Product(NamedTuple):
    """Compute products [queries rows] of queries and packed rows: `function(rows)`, divided by float64[queries]."""

    function: Callable[[Any], Array]
    divisors: Array | None = None

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
    of_row: Callable[[Any], Array] | None = None  # [rows] of some rows
    codes: Callable[[Any], Any] = lambda rows: rows  # of rows

    def __call__(self, rows: Any) -> Array:
        """Compute scores [queries rows]."""
        p = self.product(self.codes(rows))
        if self.of_query is None:
            return p
        a, scores = self.of_query[:, None], p + self.of_query[:, None] if self.metric == SUM else p
        if self.of_row is not None:
            b = self.of_row(rows)[None]
            exact = p.dtype.kind == a.dtype.kind == b.dtype.kind == "i"
            if self.metric == COSINE:
                scores = ratio(p, a * b)
            elif self.metric == ESTIMATE:
                scores = a + np.square(b.astype(np.float64)) - 2 * p
            else:
                scores = np.maximum(a + b - 2 * p.astype(np.int64 if exact else np.float64), 0)
        return scores

    def terms(self, count: int, rows: Any) -> tuple[Array, Array, Array]:
        """Return divisors and numbers of the `count` queries, and numbers of rows, as `add_products` takes them."""
        divisors = np.ones(count) if self.product.divisors is None else self.product.divisors
        of_query = np.zeros(count) if self.of_query is None else self.of_query.astype(np.float64, copy=False)
        of_row = np.empty(0) if self.of_row is None else self.of_row(rows)
        if of_row.dtype != np.float32:
            of_row = of_row.astype(np.float64, copy=False)
        return divisors, of_query, of_row


def ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator in float64, and 0 for 0 / 0."""
    return np.divide(numerator, denominator, out=np.zeros(denominator.shape), where=denominator != 0)
