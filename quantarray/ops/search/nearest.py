"""The nearest rows of a database, all rows within a radius, and a second look at candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import contiguous, empty, kernel, namespace
from ...core.code_values import all_finite
from ...core.dtypes import Array
from ...core.errors import DeviceError
from ...core.hints import Bools, QuantizeX, Vector
from ..products.float_rows import words_in_place
from . import checking, metrics
from .candidates import best_of, taken
from .metrics import Metric
from .rabitq import RotatedRows
from .scores import Scores
from .selection import Best, best_products

Name = Literal["hamming", "jaccard", "tanimoto", "dice", "tversky", "dot", "cosine", "l2"]
_SCORES = 1 << 20  # of a block: some 16 MB with what is computed of them
_PRODUCTS = 1 << 22  # of a block that a kernel reads as they are: 16 MB; with twice as many, memory is new each time
_PIECES = 8  # of rows, which threads take
_CANDIDATES = 1 << 22  # that are in memory at once, at 16 bytes


class _Pair(NamedTuple):
    distances: Array
    indices: Array


class Nearest(_Pair):
    """A result of `top_k`, nearest first: both [queries k], or [k] of one query; indices int64.

    `metric` names what was compared, for `rescore`.
    """

    metric: str | None = None


def _of_metric(distances: Array, indices: Array, metric: str) -> Nearest:
    result = Nearest(distances, indices)
    result.metric = metric
    return result


class Within(NamedTuple):
    """A result of `within`: the rows of query q are indices[starts[q] : starts[q + 1]], in ascending order."""

    starts: Array
    indices: Array
    distances: Array


def top_k(
    queries: QuantArray | Bools | Vector,
    database: QuantArray | Bools | RotatedRows,
    k: int,
    metric: Name = "hamming",
    *,
    where: QuantArray | Vector | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    quantize_queries: QuantizeX = None,
    candidates: int | None = None,
    planes: int | None = None,
) -> Nearest:
    """Find the k rows of a packed database that are nearest to each query, by comparing it with all of them.

    queries: QuantArray [m d], or [d]; database: QuantArray [n d]; both packed on the last axis. Arrays of bools are
    packed for the call, as uint1; pack a database once with `encode(database, values=uint1)`. Of equal scores the lower
    index comes first. Scores of a block of rows are in memory at once.

    `distances` are, by metric:

    - "hamming", int64: places where codes differ. One dtype. For levels -1 and 1, `d - 2 * distances` are the products.
    - "jaccard" (or "tanimoto"), "dice" and "tversky" (with `alpha` for what only the query has and `beta` for what only
      the row has), float64 similarities, the largest first, of arrays of 1 bit; 0 where both are empty.
    - "dot", the largest first, "cosine", float64, the largest first, and "l2", the squared distance: of packed arrays
      of any bits. Queries may be arrays of floats, as float32, or int8, too, and `quantize_queries` makes int8 of such
      floats as `quantize_x` of `linear` does. Exact for integer levels; float32 products as of `linear` otherwise.

    A database of `RaBitQ.quantize` is searched by estimates of "dot" and "l2", with queries of floats.

    where: rows that are searched, a mask [n] of bools, or ids. k is at most their number.

    candidates: for "dot", "cosine" and "l2", how many rows are scored, at least k: those whose signs, the highest plane
    of codes, differ least from the signs of the query. Scores are those of a search of all rows, in less time, but rows
    that are not among the candidates are not found. planes: candidates are the rows of the best scores by so many of
    the highest planes, for levels that are evenly spaced. One query, or a few, then read less than all planes.

    Raises TypeError for dtypes that a metric does not take, or whose signs no plane has, ValueError where shapes or k
    do not fit, OverflowError where scores pass float32, DeviceError on a GPU for all but Hamming distances of 1 bit.

    >>> import quantarray as qa
    >>> codes = qa.encode([[1, 1, 1], [1, -1, 1], [-1, -1, -1]], values=(-1, 1))
    >>> qa.top_k(qa.encode([1, -1, -1], values=(-1, 1)), codes, 2)
    Nearest(distances=array([1, 1]), indices=array([1, 2]))
    >>> sets = qa.pack_bits([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
    >>> qa.top_k(qa.pack_bits([1, 1, 1, 0]), sets, 2, "jaccard", where=[1, 2])
    Nearest(distances=array([0.75, 0.  ]), indices=array([1, 2]))
    """
    op = "top_k"
    how = metrics.metric_of(op, metric, alpha, beta, quantize_queries)
    asked, rows = checking.operands(op, queries, database, how)
    chosen = checking.selected(op, where, len(rows))
    n = len(rows) if chosen is None else len(chosen)
    k = checks.integer(op, "k", k, 0)
    if k > n:
        what = f"rows of database {rows.shape}" if chosen is None else f"rows of {len(rows)} that where selects"
        raise ValueError(f"{op}: k must be at most the {n} {what}, got {k}")
    single = asked.ndim == 1
    searched = _chosen(rows, chosen)
    number = _candidates(op, candidates, k, n, how)
    used = planes if planes is None else _planes(op, planes, candidates, rows.bits)
    if rows.bits == 1 and how.name not in metrics.PRODUCTS:
        scores, ids = _by_words(asked, searched, k, how)
    else:
        scores, ids = _by_scores(op, asked[None] if single else asked, searched, k, how, number, used)
        _check_scores(op, scores)
    if chosen is not None:
        ids = namespace(rows.device).asarray(chosen)[ids]
    return _of_metric(scores[0] if single else scores, ids[0] if single else ids, how.name)


def _check_scores(op: str, scores: Array) -> None:
    if not all_finite(scores):
        raise OverflowError(f"{op}: scores pass the largest float; divide queries and rows by a number")


def _chosen(rows: Any, chosen: Array | None) -> Any:
    """Return the rows that are searched."""
    if chosen is None:
        return rows
    return taken(rows, chosen)


def _candidates(op: str, candidates: Any, k: int, n: int, how: Metric) -> int:
    """Return how many rows are scored for each query."""
    if candidates is None:
        return n
    if how.name not in metrics.PRODUCTS:
        raise ValueError(f"{op}: candidates are for the metrics {', '.join(metrics.PRODUCTS)}, got {how.name!r}")
    number = checks.integer(op, "candidates", candidates, -(2**63))
    if number < k:
        raise ValueError(f"{op}: candidates must be at least k = {k}, got {number}")
    return min(number, n)


def _planes(op: str, planes: Any, candidates: Any, bits: int) -> int:
    """Check the number of planes by which candidates are found."""
    if candidates is None:
        raise ValueError(f"{op}: planes says how candidates are found; pass candidates too, such as 20 k")
    return checks.integer(op, "planes", planes, 1, bits)


def _by_words(asked: QuantArray, searched: QuantArray, k: int, how: Metric) -> tuple[Array, Array]:
    """Return the distances, or similarities, and rows that the kernel finds, which stores no others."""
    words, queries = _words(searched), _words(asked)
    out = empty(searched.device, (2, len(queries), k), np.int64)
    if how.name == "hamming":
        kernel(searched.device, "nearest")(words, queries, out)
        return out[0], out[1]
    scores = out[0].view(np.float64)
    kernel(searched.device, "nearest_sets")(words, queries, how.alpha, how.beta, scores, out[1])
    return scores, out[1]


def _words(q: QuantArray) -> Array:
    """Return the words [rows word] of an array [rows bits] or [bits] of 1 bit an element."""
    return contiguous(q.words[0] if q.ndim == 2 else q.words)  # q[None] would take as long as a small search


def _by_scores(
    op: str, asked: Any, searched: Any, k: int, how: Metric, number: int, planes: int | None
) -> tuple[Array, Array]:
    """Return the best of scores of all rows, a block at a time, or of a `number`, for so many queries that candidates
    fit."""
    n, searched = len(searched), searched if k else searched[:0]
    at_once, parts = max(1, _CANDIDATES // max(1, 2 * number if number < n else min(2 * k, n))), []
    for query in range(0, max(1, len(asked)), at_once):
        some = asked[query : query + at_once]
        if k and number < n:
            parts.append(best_of(op, some, searched, k, how, number, planes))
            continue
        scores = metrics.scores_of(op, some, metrics.rotated_of(some, searched, how), searched, how)
        if k and isinstance(scores, Scores) and scores.product.codes is not None:
            parts.append(best_products(scores, words_in_place(scores.codes(searched)), k, how.sign))
            continue
        best = Best(len(some), n, k, how.sign)
        alone = isinstance(scores, Scores) and scores.product.divisors is not None
        for first, rows in _blocks(searched, max(1, (_PRODUCTS if alone else _SCORES) // max(1, len(some)))):
            if isinstance(scores, Scores):
                best.add_products(scores, rows, first)
            else:
                best.add(scores(rows, first), first)
        parts.append(best.result())
    values, ids = parts[0] if len(parts) == 1 else (np.concatenate(each) for each in zip(*parts, strict=True))
    return values, ids


def _blocks(rows: Any, size: int) -> Iterator[tuple[int, Any]]:
    """(first row, `size` rows) of each block, and of none where there are none."""
    for first in range(0, max(1, len(rows)), size):
        yield first, rows if size >= len(rows) else rows[first : first + size]


def within(
    queries: QuantArray | Bools | Vector,
    database: QuantArray | Bools | RotatedRows,
    radius: float,
    metric: Name = "hamming",
    *,
    where: QuantArray | Vector | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    quantize_queries: QuantizeX = None,
) -> Within:
    """Find all rows of a packed database whose distance from a query is at most `radius`.

    Of similarities ("jaccard", "dice", "tversky", "dot", "cosine") those are found that are at least `radius`.
    Operands, scores and `where` as of `top_k`. Rows of a query are in ascending order.

    >>> import quantarray as qa
    >>> sets = qa.pack_bits([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
    >>> qa.within(sets[:2], sets, 0.5, "jaccard")
    Within(starts=array([0, 2, 4]), indices=array([0, 1, 0, 1]), distances=array([1. , 0.5, 0.5, 1. ]))
    """
    op = "within"
    how = metrics.metric_of(op, metric, alpha, beta, quantize_queries)
    asked, rows = checking.operands(op, queries, database, how)
    if rows.device != "cpu":
        raise DeviceError(f"{op}: rows within a radius are searched on the CPU; .to_device('cpu') moves them")
    chosen = checking.selected(op, where, len(rows))
    rows = _chosen(rows, chosen)
    limit = how.sign * checks.number(op, "radius", radius)
    number = len(asked) if asked.ndim == 2 else 1
    size = max(1, _SCORES // max(1, number))
    if rows.bits == 1 and how.name not in metrics.PRODUCTS:
        query, row, scores = _within_by_words(asked, rows, how, limit * how.sign, 4 * size)
    else:
        parts = []
        several = asked if asked.ndim == 2 else asked[None]
        scores_of = metrics.scores_of(op, several, metrics.rotated_of(several, rows, how), rows, how)
        for first, some in _blocks(rows, size):
            block = scores_of(some, first)
            _check_scores(op, block)
            query, row = np.nonzero(how.sign * block <= limit)
            parts.append((query, row + first, block[query, row]))
        query, row, scores = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(query, kind="stable")
    starts = np.searchsorted(query[order], np.arange(number + 1))
    ids = row if chosen is None else chosen[row]
    return Within(starts, ids[order], scores[order])


def _within_by_words(
    asked: QuantArray, rows: QuantArray, how: Metric, radius: float, size: int
) -> tuple[Array, Array, Array]:
    """Return (query, row, score) of rows that are near enough, `size` rows at a time; rows ascend."""
    of_sets = how.name in metrics.SETS
    name = "within_sets" if of_sets else "within_distance"
    settings: tuple[float, ...] = how.alpha, how.beta, max(radius, 0.0)
    if not of_sets:
        settings = (math.floor(min(max(radius, -1.0), rows.shape[1])),)
    words, queries = _words(rows), _words(asked)
    queries_and_rows, scores = [np.empty((2, 0), np.int64)], [np.empty(0, np.float64 if of_sets else np.int64)]
    for first in range(0, len(words), size):
        part = words[first : first + size]
        room = -(-len(part) // _PIECES) * len(queries)
        counts, pairs = np.empty((_PIECES, 1), np.int64), np.empty((_PIECES, 2, 1, room), np.int64)
        kernel("cpu", name)(part, queries, *settings, counts, pairs)
        for piece, (count,) in enumerate(counts):
            keys, places = pairs[piece, :, 0, :count]
            row, query = np.divmod(places, len(queries))
            queries_and_rows.append(np.stack([query, row + first]))
            scores.append((-keys).view(np.float64) if of_sets else keys)
    query, row = np.concatenate(queries_and_rows, axis=1)
    return query, row, np.concatenate(scores)


def rescore(candidates: Nearest | Vector, queries: Vector, rows: Array, k: int, metric: Name | None = None) -> Nearest:
    """Sort candidates by scores of floats, and return the k nearest of each query.

    candidates: a result of `top_k` for the same queries, or indices [m c]; queries: floats [m d], or [d]; rows: floats,
    or bytes, which count as integers, [n d], that may be memory-mapped: only the candidates' are read, those of one
    query at a time. metric: "dot", "cosine" or "l2", in float64; without it that of the candidates, or "dot" where they
    come from another or are indices. Of equal scores the lower index comes first. Raises ValueError for a NaN or an
    infinity in queries and candidates' rows.

    >>> import numpy as np, quantarray as qa
    >>> rows = np.float32([[1, 2], [2, 1], [-1, 0.5]])
    >>> found = qa.top_k(qa.pack_bits(rows[:1] > 0), qa.pack_bits(rows > 0), 2)
    >>> qa.rescore(found, np.float32([[0, 3]]), rows, 1)
    Nearest(distances=array([[6.]]), indices=array([[0]]))
    """
    op = "rescore"
    if metric is None:
        before = getattr(candidates, "metric", None)
        metric = before if before in metrics.PRODUCTS else "dot"
    name = checks.choice(op, "metric", metric, metrics.PRODUCTS)
    if isinstance(rows, RotatedRows):
        raise TypeError(f"{op}: rows must be floats or bytes, got RotatedRows; pass the vectors that were quantised")
    if isinstance(candidates, Within):
        raise TypeError(f"{op}: candidates must be a result of top_k, or indices [m c], got one of within")
    asked = checks.numbers(op, "queries", queries).astype(np.float64)
    ids = checks.numbers(op, "candidates", candidates.indices if isinstance(candidates, Nearest) else candidates)
    if not isinstance(rows, np.ndarray):
        rows = checks.numbers(op, "rows", rows)
    single = asked.ndim == 1
    asked, ids = (np.atleast_2d(asked), np.atleast_2d(ids)) if single else (asked, ids)
    if asked.ndim != 2 or rows.ndim != 2 or ids.ndim != 2 or len(ids) != len(asked):
        raise ValueError(
            f"{op}: needs queries [m d], rows [n d] and candidates [m c], got {asked.shape}, {rows.shape} and "
            f"{ids.shape}"
        )
    if asked.shape[1] != rows.shape[1]:
        raise ValueError(f"{op}: queries {asked.shape} and rows {rows.shape} must have the same last length")
    if ids.size and ids.dtype.kind in "iu" and ids.max() >= len(rows):
        raise IndexError(
            f"{op}: candidates name row {ids.max()}, rows is {rows.shape}; pass the rows that were searched"
        )
    k = checks.integer(op, "k", k, 0, ids.shape[1])
    checks.finite(op, "queries", asked)
    near = np.empty(ids.shape, np.int64)
    scores = np.empty(ids.shape)
    for q, query in enumerate(asked):
        near[q] = np.sort(checks.indices(op, ids[q], len(rows), 0))
        values = np.asarray(rows[near[q]], np.float64)
        if not all_finite(values):
            row, element = np.argwhere(~np.isfinite(values))[0]
            raise ValueError(
                f"{op}: rows must be finite, got {values[row, element]} at ({near[q, row]}, {element}), a candidate of "
                f"query {q}"
            )
        scores[q] = _float_scores(name, query, values)
    best = Best(len(ids), ids.shape[1], k, 1 if name == "l2" else -1)
    best.add(scores, 0)
    scores, places = best.result()
    near = np.take_along_axis(near, places, 1)
    return _of_metric(scores[0] if single else scores, near[0] if single else near, name)


def _float_scores(name: str, query: Array, rows: Array) -> Array:
    if name == "l2":
        difference = rows - query
        distances: Array = np.einsum("ij,ij->i", difference, difference)
        return distances
    products: Array = np.einsum("ij,j->i", rows, query)
    if name == "dot":
        return products
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows)) * np.sqrt(np.einsum("j,j->", query, query))
    cosines: Array = np.divide(products, norms, out=np.zeros(len(rows)), where=norms > 0)
    return cosines
