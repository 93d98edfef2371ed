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
from . import scores
from .rabitq import RotatedRows
from .scores import Product, Scores, ratio

DISTANCES, SETS, PRODUCTS = ("hamming", "l2"), ("jaccard", "dice", "tversky"), ("dot", "cosine", "l2")
METRICS = ("hamming", *SETS, *PRODUCTS)
ALIASES = {"tanimoto": "jaccard"}
_TVERSKY = {"jaccard": (1.0, 1.0), "dice": (0.5, 0.5)}  # alpha and beta; all sums are exact
_FEW = 16  # queries that meet the words of rows, whose codes are made again for each eight or four


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


def scores_of(op: str, queries: Any, rotated: Any, database: Any, metric: Metric) -> Scores | Callable[[Any], Array]:
    """Return a function of packed or rotated rows [n d], a part of a database, that gives scores [queries n].

    queries: QuantArray [m d], or for products float32 or int8 arrays; rotated: `rotated_of` them.
    """
    if isinstance(database, RotatedRows):
        product = _product_with(op, rotated, database.codes, metric.quantize_queries)
        return database.scores(queries, metric.name, product)
    if metric.name == "hamming":
        return _hamming(queries)
    if metric.name in SETS:
        return _sets(queries, metric)
    return _products(op, queries, database, metric)


def _hamming(queries: QuantArray) -> Callable[[Any], Array]:
    """d - 2 * differing is the product of signs; for more bits, elements are compared."""
    if queries.bits > 1:
        return lambda rows: hamming(queries[:, None], rows[None])
    signs, length = _of_law(queries, bipolar), queries.shape[1]

    def scores(rows: QuantArray) -> Array:
        products: Array = linear(_of_law(rows, bipolar), signs).T.astype(np.int64)
        return (length - products) >> 1

    return scores


def _sets(queries: QuantArray, metric: Metric) -> Callable[[Any], Array]:
    members, of_query = _of_law(queries, uint1), _squares(_of_law(queries, uint1))[:, None]

    def scores(rows: QuantArray) -> Array:
        others = _of_law(rows, uint1)
        both, of_row = linear(others, members).T, _squares(others)[None]
        return ratio(both, both + metric.alpha * (of_query - both) + metric.beta * (of_row - both))

    return scores


def _products(op: str, queries: Any, database: QuantArray, metric: Metric) -> Scores:
    product = _product_with(op, queries, database, metric.quantize_queries)
    if metric.name == "dot":
        return Scores(product)
    if metric.name == "l2":
        return Scores(product, scores.DISTANCE, _squares(queries), _squares)
    return Scores(product, scores.COSINE, _lengths(queries), _lengths)


def _product_with(op: str, queries: Any, database: QuantArray, quantize_queries: QuantizeX) -> Product:
    """Return the products of queries and rows of the database. The queries are the weights of a product, whose layout
    is made once; that of a block of rows would be made for each call."""
    if isinstance(queries, QuantArray):
        return Product(lambda rows: linear(rows, queries).T)
    floats = queries.dtype.kind == "f"
    if floats and quantize_queries is None:
        return Product(lambda rows: linear(queries, rows))
    if floats and (quantize_queries != "row" or not queries.size):
        return Product(
            lambda rows: float_rows.by_codes(
                op, queries, rows, quantize_queries, lambda codes, part: linear(part, from_dense(codes, 1)).T,
                float_rows.TINY,
            )
        )  # fmt: skip
    codes, scale = float_rows.codes_of(op, queries, float_rows.TINY) if floats else (queries, None)
    if 0 < len(codes) <= _FEW and len(database) and codes.dtype == np.int8:
        if float_rows.is_in_place(database) and not (database.scale is None and scale is None):
            divisors = np.ones((len(codes), 1), np.float32) if scale is None else scale
            return Product(lambda rows: float_rows.by_words(codes, divisors, rows))
    whole = from_dense(codes, 1)
    return Product(lambda rows: linear(rows, whole).T, None if scale is None else scale[:, 0].astype(np.float64))


def _lengths(x: Any) -> Array:
    """Return the length of each row."""
    lengths: Array = np.sqrt(_squares(x).astype(np.float64))
    return lengths


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
    quantize_queries = float_rows.checked_runs(op, "quantize_queries", quantize_queries)
    a, b = _TVERSKY.get(name, (a, b))
    return Metric(name, a, b, quantize_queries)
