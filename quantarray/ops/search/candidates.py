"""Candidates by the signs of rows, and scores of these alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import contiguous, kernel
from ...core.dtypes import Array
from ..creation.bit_packing import pack_bits
from ..manipulation.taking import take
from . import metrics
from .metrics import Metric
from .rabitq import RotatedRows
from .selection import Best

_TOGETHER = 16  # queries whose candidates are scored by one product, of which the scores of others are not used


def taken(rows: Any, ids: Array) -> Any:
    """Return some of the rows, packed or rotated."""
    return rows[ids] if isinstance(rows, RotatedRows) else take(rows, ids, 0)


def best_of(op: str, asked: Any, searched: Any, k: int, how: Metric, number: int) -> tuple[Array, Array]:
    """Return the k best scores, and their rows, among the `number` rows whose signs differ least from each query's."""
    near, rotated = np.empty((2, len(asked), number), np.int64), metrics.rotated_of(asked, searched, how)
    kernel("cpu", "nearest")(_plane(op, searched), _signs(rotated), near)
    ids = np.sort(near[1], axis=1)  # of equal scores the lower index comes first
    parts = []
    for first in range(0, max(1, len(asked)), _TOGETHER):
        some, turned, rows = (each[first : first + _TOGETHER] for each in (asked, rotated, ids))
        every = np.arange(len(rows))
        scores = metrics.scores_of(op, some, turned, searched, how)(taken(searched, rows.reshape(-1)))
        best = Best(len(rows), number, k, how.sign)
        best.add(scores.reshape(len(rows), len(rows), number)[every, every], 0)
        of_some, places = best.result()
        parts.append((of_some, np.take_along_axis(rows, places, 1)))
    scores, ids = (np.concatenate(each) for each in zip(*parts, strict=True))
    return scores, ids


def _plane(op: str, rows: Any) -> Array:
    """Return the words [n word] of the highest plane, if that has the signs of levels."""
    codes = rows.codes if isinstance(rows, RotatedRows) else rows
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
