"""Candidates by the signs or by the highest planes of rows, and scores of these alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import contiguous, kernel
from ...core.dtypes import Array
from ..creation.bit_packing import pack_bits
from ..manipulation.taking import take
from ..products.float_rows import TINY, codes_of, is_in_place, words_in_place
from . import metrics
from .metrics import Metric
from .rabitq import RotatedRows
from .scores import Scores
from .selection import Best, best_products

_TOGETHER = 16  # queries whose candidates are scored by one product, of which the scores of others are not used


def taken(rows: Any, ids: Array) -> Any:
    """Return some of the rows, packed or rotated."""
    return rows[ids] if isinstance(rows, RotatedRows) else take(rows, ids, 0)


def best_of(
    op: str, asked: Any, searched: Any, k: int, how: Metric, number: int, planes: int | None
) -> tuple[Array, Array]:
    """Return the k best scores, and their rows, among `number` rows for each query.

    These are the rows whose signs differ least from the query's, or those of the best scores by the highest planes.
    """
    rotated = metrics.rotated_of(asked, searched, how)
    scores = metrics.scores_of(op, asked, rotated, searched, how)
    assert isinstance(scores, Scores)
    packed = scores.codes(searched)
    if planes is None:
        near = np.empty((2, len(asked), number), np.int64)
        kernel("cpu", "nearest")(_plane(op, packed), _signs(rotated), near)
    else:
        near = _by_planes(op, rotated, packed, scores, number, planes)
    ids = np.sort(near[1], axis=1)  # of equal scores the lower index comes first
    if scores.product.codes is not None:
        words = words_in_place(packed)
        parts = [best_products(scores.at(q, some), words.at(some), k, how.sign) for q, some in enumerate(ids)]
        return _joined([(values, some[places]) for (values, places), some in zip(parts, ids, strict=True)])
    parts = []
    for first in range(0, max(1, len(asked)), _TOGETHER):
        some, turned, rows = (each[first : first + _TOGETHER] for each in (asked, rotated, ids))
        every, chosen = np.arange(len(rows)), taken(searched, rows.reshape(-1))
        values = metrics.scores_of(op, some, turned, chosen, how)(chosen, 0)
        best = Best(len(rows), number, k, how.sign)
        best.add(values.reshape(len(rows), len(rows), number)[every, every], 0)
        of_some, places = best.result()
        parts.append((of_some, np.take_along_axis(rows, places, 1)))
    return _joined(parts)


def _joined(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    scores, ids = (np.concatenate(each) for each in zip(*parts, strict=True))
    return scores, ids


def _by_planes(op: str, queries: Any, rows: QuantArray, scores: Scores, number: int, planes: int) -> Array:
    """Return keys and rows of the best scores of int8 queries and the highest planes of rows."""
    if not is_in_place(rows):
        raise TypeError(
            f"{op}: candidates are found by planes of levels that are evenly spaced, without groups along a row, of up "
            f"to 65,536 elements, got {rows.dtype} of {rows.shape[1]} elements; leave planes out"
        )
    values = queries.dequantize() if isinstance(queries, QuantArray) else queries
    codes, scale = values, np.ones(len(values), np.float32)
    if values.dtype != np.int8:
        codes, scale = codes_of(op, values.astype(np.float32, copy=False), TINY)
    near = np.empty((2, len(values), number), np.int64)
    words, terms = words_in_place(rows).highest(planes), scores.terms(len(values), 0, len(rows))
    kernel("cpu", "nearest_products")(contiguous(codes), scale.reshape(-1), *words, *terms, near)
    return near


def _plane(op: str, codes: QuantArray) -> Array:
    """Return the words [n word] of the highest plane, if that has the signs of levels."""
    levels, half = codes.dtype.levels or (), 2 ** (codes.bits - 1)
    signed = codes.dtype.ascending and len(levels) > half and levels[half - 1] <= 0 <= levels[half]
    if not signed or codes.offset is not None:
        raise TypeError(
            f"{op}: candidates are found by the highest plane, which must tell levels above and below 0 apart, as in "
            f"int4 and with quantize(x, Uniform(bits)); that of {codes.dtype} does not"
        )
    return contiguous(codes.words[-1])


def _signs(queries: Any) -> Array:
    """Return the words [queries word] of the signs of queries."""
    values = queries.dequantize() if isinstance(queries, QuantArray) else queries
    return contiguous(pack_bits(values > 0).words[0])
