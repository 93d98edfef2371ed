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

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import few_queries
from ...core.dtypes import Array, bipolar, uint1
from ...core.format import word_count
from ...core.hints import QuantizeX
from ..linear_algebra.contractions import hamming
from ..products import float_rows
from ..products.matrix_product import linear
from ..products.operand import from_dense
from ..words.conversion import dequantize
from . import scores
from .rabitq import RotatedRows
from .scores import Product, Scores, ratio

DISTANCES, SETS, PRODUCTS = ("hamming", "l2"), ("jaccard", "dice", "tversky"), ("dot", "cosine", "l2")
METRICS = ("hamming", *SETS, *PRODUCTS)
ALIASES = {"tanimoto": "jaccard"}
_TVERSKY = {"jaccard": (1.0, 1.0), "dice": (0.5, 0.5)}  # alpha and beta; all sums are exact
_VALUES = 1 << 20  # of rows whose squares are summed at once
_WHOLE = np.empty((0, 1), np.float32)  # no scales: products are integers
_FEW = 16  # packed queries that meet the words of rows as int8


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


def scores_of(
    op: str, queries: Any, rotated: Any, database: Any, metric: Metric
) -> Scores | Callable[[Any, int], Array]:
    """Return a function of packed or rotated rows [n d] of a database, and of the first one's number, that gives scores
    [queries n].

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


def _hamming(queries: QuantArray) -> Callable[[Any, int], Array]:
    """d - 2 * differing is the product of signs; for more bits, elements are compared."""
    if queries.bits > 1:
        return lambda rows, first: hamming(queries[:, None], rows[None])
    signs, length = _of_law(queries, bipolar), queries.shape[1]

    def scores(rows: QuantArray, first: int) -> Array:
        products: Array = linear(_of_law(rows, bipolar), signs).T.astype(np.int64)
        return (length - products) >> 1

    return scores


def _sets(queries: QuantArray, metric: Metric) -> Callable[[Any, int], Array]:
    members, of_query = _of_law(queries, uint1), _squares(_of_law(queries, uint1))[:, None]

    def scores(rows: QuantArray, first: int) -> Array:
        others = _of_law(rows, uint1)
        both, of_row = linear(others, members).T, _squares(others)[None]
        return ratio(both, both + metric.alpha * (of_query - both) + metric.beta * (of_row - both))

    return scores


def _products(op: str, queries: Any, database: QuantArray, metric: Metric) -> Scores:
    product = _product_with(op, queries, database, metric.quantize_queries)
    if metric.name == "dot":
        return Scores(product)
    squares = database._cached("squares", _squares, database)
    if metric.name == "l2":
        return Scores(product, scores.DISTANCE, _squares(queries), squares)
    return Scores(product, scores.COSINE, _lengths(_squares(queries)), database._cached("lengths", _lengths, squares))


def _product_with(op: str, queries: Any, database: QuantArray, quantize_queries: QuantizeX) -> Product:
    """Return the products of queries and rows of the database. The queries are the weights of a product, whose layout
    is made once; that of a block of rows would be made for each call."""
    if isinstance(queries, QuantArray):
        as_codes, whole = None, _is_whole(queries, database)
        if whole and 0 < len(queries) <= _FEW and float_rows.is_in_place(database):
            as_codes = _levels_as_codes(queries)
        return Product(
            lambda rows: linear(rows, queries).T, None, None if as_codes is None else (as_codes, _WHOLE), whole
        )
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
    asked, scale = float_rows.codes_of(op, queries, float_rows.TINY) if floats else (queries, None)
    whole = scale is None and _is_whole(asked, database)
    few = few_queries(database.device, database.bits, word_count(database.shape[1]))
    if 0 < len(asked) <= few and len(database) and asked.dtype == np.int8 and float_rows.is_in_place(database):
        if whole:
            return Product(lambda rows: linear(rows, from_dense(asked, 1)).T, None, (asked, _WHOLE), whole)
        if database.scale is not None or scale is not None:
            by_row = np.ones((len(asked), 1), np.float32) if scale is None else scale
            return Product(lambda rows: float_rows.by_words(asked, by_row, rows), None, (asked, by_row))
    packed, divisors = from_dense(asked, 1), None if scale is None else scale[:, 0].astype(np.float64)
    return Product(lambda rows: linear(rows, packed).T, divisors, None, whole)


def _is_whole(queries: Any, rows: QuantArray) -> bool:
    """True where products of queries and rows are integers that int32 has, and float64 their squares."""
    most = [rows.shape[1]]
    for side in (queries, rows):
        if isinstance(side, QuantArray) and (not side.dtype.is_integer or side.constants.has_scale):
            return False
        most.append(side.dtype.max_abs if isinstance(side, QuantArray) else 2 ** (8 * side.dtype.itemsize))
    return math.prod(most) < 2**31 and most[0] * max(most[1:]) ** 2 < 2**53


def _levels_as_codes(queries: QuantArray) -> Array | None:
    """Return the levels of queries as int8, if that holds them."""
    levels = queries.dtype.levels if queries.scale is None else None
    if levels is None or not -128 <= min(levels) <= max(levels) <= 127:
        return None
    return dequantize(queries).astype(np.int8)


def _lengths(squares: Array) -> Array:
    """Return the length of each row."""
    lengths: Array = np.sqrt(squares.astype(np.float64))
    return lengths


def _squares(x: Any) -> Array:
    """Return the sum of squares of each row: int64 of integers whose sums fit, else float64."""
    if not isinstance(x, QuantArray):
        wide = x.astype(np.int64 if x.dtype.kind in "iub" else np.float64)
        total: Array = (wide * wide).sum(axis=1)
        return total
    table = None if x.dtype.levels is None or x.scale is not None else np.square(np.array(x.dtype.levels, object))
    exact = table is not None and max(table) * x.shape[1] < 2**62
    squares, at_once = np.empty(len(x), np.int64 if exact else np.float64), max(1, _VALUES // max(1, x.shape[1]))
    for first in range(0, len(x), at_once):
        rows = x[first : first + at_once]
        if table is None:
            values = dequantize(rows).astype(np.float64)
            np.square(values, out=values)
        else:
            values = table.astype(squares.dtype)[rows.codes()]
        squares[first : first + at_once] = values.sum(axis=1)
    return squares


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
