"""Scores of packed rows for queries, a block of rows at a time: distances, smallest first, or similarities.

| metric | score | rows |
|---|---|---|
| hamming | places where codes differ | one dtype |
| jaccard | n(a & b) / n(a or b) | 1 bit |
| dice | 2 n(a & b) / (n(a) + n(b)) | 1 bit |
| tversky | n(a & b) / (n(a & b) + alpha n(a without b) + beta n(b without a)) | 1 bit |
| dot | sum a * b | any |
| cosine | sum a * b / (norm(a) * norm(b)) | any |
| l2 | sum (a - b)**2, the squared distance | any |

a is the query. 0 / 0, as of two empty sets, is 0, as RDKit has it: what has nothing is near to nothing. Counts and sums
of integers are exact, and each ratio of counts is a float64 that was rounded once: ratios of counts below 2**26 that
differ are different floats, so they are compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import Array, bipolar, uint1
from ...core.hints import QuantizeX
from ..linear_algebra.contractions import hamming
from ..products import float_rows
from ..products.matrix_product import linear
from ..products.operand import from_dense
from ..statistical.map_reduce import map_reduce
from .rabitq import RotatedRows

DISTANCES, SETS, PRODUCTS = ("hamming", "l2"), ("jaccard", "dice", "tversky"), ("dot", "cosine", "l2")
METRICS = ("hamming", *SETS, *PRODUCTS)
ALIASES = {"tanimoto": "jaccard"}
_TVERSKY = {"jaccard": (1.0, 1.0), "dice": (0.5, 0.5)}  # alpha and beta; all sums are exact
Scores = Callable[[Any], Array]


class Metric(NamedTuple):
    """A metric's name and its settings."""

    name: str
    alpha: float
    beta: float
    quantize_queries: QuantizeX

    @property
    def sign(self) -> int:
        """-1 for similarities, of which the largest are the nearest."""
        return 1 if self.name in DISTANCES else -1


def rotated_of(queries: Any, database: Any, metric: Metric) -> Any:
    """Return the queries, rotated as the rows of a database are."""
    return database.rotated(queries, metric.name) if isinstance(database, RotatedRows) else queries


def scores_of(op: str, queries: Any, rotated: Any, database: Any, metric: Metric) -> Scores:
    """Return a function of packed or rotated rows [n d], a part of a database, that gives scores [queries n].

    queries: QuantArray [m d], or for products float32 or int8 arrays; rotated: `rotated_of` them.
    """
    if isinstance(database, RotatedRows):
        return database.scores(queries, rotated, metric.name, lambda x: _product_with(op, x, metric.quantize_queries))
    if metric.name == "hamming":
        return _hamming(queries)
    if metric.name in SETS:
        return _sets(queries, metric)
    return _products(op, queries, metric)


def _hamming(queries: QuantArray) -> Scores:
    """d - 2 * differing is the product of signs; for more bits, elements are compared."""
    if queries.bits > 1:
        return lambda rows: hamming(queries[:, None], rows[None])
    signs, length = _of_law(queries, bipolar), queries.shape[1]

    def scores(rows: QuantArray) -> Array:
        products: Array = linear(_of_law(rows, bipolar), signs).T.astype(np.int64)
        return (length - products) >> 1

    return scores


def _sets(queries: QuantArray, metric: Metric) -> Scores:
    members, of_query = _of_law(queries, uint1), _squares(_of_law(queries, uint1))[:, None]

    def scores(rows: QuantArray) -> Array:
        others = _of_law(rows, uint1)
        both, of_row = linear(others, members).T, _squares(others)[None]
        return ratio(both, both + metric.alpha * (of_query - both) + metric.beta * (of_row - both))

    return scores


def _products(op: str, queries: Any, metric: Metric) -> Scores:
    of_query = None if metric.name == "dot" else _squares(queries)[:, None]
    product = _product_with(op, queries, metric.quantize_queries)

    def scores(rows: QuantArray) -> Array:
        products = product(rows)
        if of_query is None:
            return products
        of_row = _squares(rows)[None]
        if metric.name == "cosine":
            norms = np.sqrt(of_query.astype(np.float64)) * np.sqrt(of_row.astype(np.float64))
            return ratio(products, norms)
        exact = products.dtype.kind == "i" and of_query.dtype.kind == of_row.dtype.kind == "i"
        wide = np.int64 if exact else np.float64
        squares: Array = np.maximum(of_query + of_row - 2 * products.astype(wide), 0)
        return squares

    return scores


def _product_with(op: str, queries: Any, quantize_queries: QuantizeX) -> Scores:
    """Return a function of rows that gives queries @ rows.T. The queries are the weights of a product, whose layout is
    made once; that of a block of rows would be made for each call."""
    if not isinstance(queries, QuantArray) and queries.dtype.kind != "f":
        queries = from_dense(queries, 1)
    if isinstance(queries, QuantArray):
        return lambda rows: linear(rows, queries).T
    if quantize_queries is None:
        return lambda rows: linear(queries, rows)
    if quantize_queries == "row" and queries.size:  # the same as below, with codes that are made once
        codes, scale = float_rows.codes_of(op, queries, float_rows.TINY)
        whole = from_dense(codes, 1)
        return lambda rows: (linear(rows, whole).T.astype(np.float64) / scale).astype(np.float32)
    return lambda rows: float_rows.by_codes(
        op, queries, rows, quantize_queries, lambda codes, part: linear(part, from_dense(codes, 1)).T, float_rows.TINY
    )


def ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator in float64, and 0 for 0 / 0."""
    return np.divide(numerator, denominator, out=np.zeros(denominator.shape), where=denominator != 0)


def _squares(x: Any) -> Array:
    """Return the sum of squares of each row: int64 of integers whose sums fit, else float64."""
    if not isinstance(x, QuantArray):
        wide = x.astype(np.int64 if x.dtype.kind in "iub" else np.float64)
        total: Array = (wide * wide).sum(axis=1)
        return total
    levels = x.dtype.levels if x.scale is None else None
    exact = levels is not None and max(map(abs, levels)) ** 2 * x.shape[1] < 2**62
    return map_reduce(np.square if exact else _square_of_floats, x, axis=1)


def _square_of_floats(levels: Array) -> Array:
    return np.square(levels.astype(np.float64))


def _of_law(q: QuantArray, law: Any) -> QuantArray:
    """View the words of an array of one bit an element by another law."""
    return QuantArray(q.words, law, q.shape, q.axis)


def metric_of(op: str, metric: Any, alpha: Any, beta: Any, quantize_queries: Any) -> Metric:
    """Check the metric's name and settings."""
    name = checks.choice(op, "metric", ALIASES.get(metric, metric) if isinstance(metric, str) else metric, METRICS)
    a, b = checks.number(op, "alpha", alpha), checks.number(op, "beta", beta)
    if min(a, b) < 0:
        raise ValueError(f"{op}: alpha and beta of tversky must not be negative, got {alpha} and {beta}")
    if quantize_queries is not None and name not in PRODUCTS:
        raise ValueError(f"{op}: quantize_queries is for the metrics {', '.join(PRODUCTS)}, got {name!r}")
    float_rows.check_runs(op, "quantize_queries", quantize_queries)
    a, b = _TVERSKY.get(name, (a, b))
    return Metric(name, a, b, quantize_queries)
