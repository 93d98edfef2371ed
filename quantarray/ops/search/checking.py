"""Checks of the operands of searches, with the fix in each message."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.exchange import is_on_gpu
from ...backends.registry import common_device
from ...core.dtypes import Array, bipolar, uint1
from ...core.errors import DeviceError
from ...core.format import WORD_BITS
from ..products.operand import bits
from . import rabitq
from .metrics import PRODUCTS, SETS, Metric

_MOST = 1e30  # up to which the package quantises
_DENSE = np.int8, np.uint8, np.float16, np.float32, np.float64


def operands(op: str, queries: Any, database: Any, metric: Metric) -> tuple[Any, Any]:
    """Check queries [m d] or [d] and a database [n d]; bools are packed, as uint1."""
    if isinstance(queries, rabitq.RotatedRows):
        raise TypeError(f"{op}: queries of rotated rows stay floats, got RotatedRows; pass the vectors themselves")
    if isinstance(database, dict) and "norms" in database:
        raise TypeError(
            f"{op}: database must be packed or rotated rows, got a dict; RotatedRows(**load(file)) makes them"
        )
    if isinstance(database, rabitq.RotatedRows):
        return _of_rotated(op, queries, database, metric), database
    hints = packed_bytes("queries", queries, database), packed_bytes("database", database, queries)
    dense = metric.name in PRODUCTS and not isinstance(queries, QuantArray) and not checks.is_bool(queries)
    if dense:
        queries = _dense(op, queries, hints[0])
    else:
        queries = bits(op, "queries", queries, hints[0])
    database = bits(op, "database", database, hints[1])
    device = common_device(op, queries=queries, database=database)
    if device != "cpu" and (metric.name != "hamming" or database.bits > 1):
        raise DeviceError(f"{op}: on a GPU there is hamming of 1 bit alone; .to_device('cpu') for {metric.name}")
    for name, q, axes in (("queries", queries, (1, 2)), ("database", database, (2,))):
        if q.ndim not in axes or (isinstance(q, QuantArray) and q.axis != q.ndim - 1):
            got = f"{q.shape} packed on axis {q.axis}" if isinstance(q, QuantArray) else str(q.shape)
            form = "[rows bits] or [bits]" if 1 in axes else "[rows bits]"
            raise ValueError(f"{op}: {name} must be {form} packed on the last axis, got {got}")
    if not dense:
        _check_laws(op, queries, database, metric)
    if metric.name in PRODUCTS:
        _check_groups(op, queries, database, metric)
    if queries.shape[-1] != database.shape[-1]:
        raise ValueError(
            f"{op}: queries {queries.shape} have {queries.shape[-1]} elements a row, database {database.shape} has "
            f"{database.shape[-1]}"
        )
    return queries, database


def _of_rotated(op: str, queries: Any, database: rabitq.RotatedRows, metric: Metric) -> Array:
    """Return queries of floats for rotated rows."""
    if metric.name not in rabitq.METRICS:
        cosine = "the dot product of rows and queries of length 1 is their cosine"
        fix = cosine if metric.name == "cosine" else 'pass metric="l2" or "dot"'
        raise ValueError(
            f"{op}: rows of RaBitQ have estimates of {' and '.join(rabitq.METRICS)} alone, got metric {metric.name!r}; "
            f"{fix}"
        )
    if isinstance(queries, QuantArray) or checks.is_bool(queries) or is_on_gpu(queries):
        raise TypeError(f"{op}: queries of rotated rows must be floats on the CPU, got {checks.kind(queries)}")
    a = _rounded(op, checks.real_array(op, "queries", queries))
    if a.ndim not in (1, 2) or a.shape[-1] != database.shape[1]:
        raise ValueError(f"{op}: queries {a.shape} have {a.shape[-1]} elements a row, database has {database.shape[1]}")
    return a


def _dense(op: str, queries: Any, hint: str) -> Array:
    """Return queries of floats as float32, and of bytes as they are."""
    if is_on_gpu(queries):
        raise DeviceError(f"{op}: dense queries are searched on the CPU, got an array on a GPU; qa.asnumpy moves it")
    a = checks.numbers(op, "queries", queries)
    if a.dtype not in _DENSE:
        raise TypeError(f"{op}: queries must be packed, or floats, int8 or uint8, got {a.dtype}{hint}")
    return _rounded(op, a) if a.dtype.kind == "f" else a


def _rounded(op: str, queries: Array) -> Array:
    """Return finite queries as float32; sums of larger ones than _MOST could pass it."""
    largest = float(np.abs(queries).max(initial=0))
    if not largest <= _MOST:  # NaN and infinity are not
        checks.finite(op, "queries", queries)
        raise ValueError(f"{op}: queries must be at most {_MOST:g}, got {largest:g}; divide them")
    return queries.astype(np.float32, copy=False)


def _check_laws(op: str, queries: QuantArray, database: QuantArray, metric: Metric) -> None:
    for name, q in (("queries", queries), ("database", database)):
        if metric.name in SETS and q.bits != 1:
            raise TypeError(f"{op}: {metric.name} compares sets, so {name} must have 1 bit an element, got {q.dtype}")
    if metric.name not in PRODUCTS and queries.dtype != database.dtype:
        both = {queries.dtype: "queries", database.dtype: "database"}
        fix = f"; 2 * {both[uint1]} - 1 is bipolar" if both.keys() == {uint1, bipolar} else ""
        raise TypeError(
            f"{op}: queries and database must have one dtype, or codes mean different things, got {queries.dtype} and "
            f"{database.dtype}{fix}"
        )


def _check_groups(op: str, queries: Any, database: QuantArray, metric: Metric) -> None:
    """Refuse integer products of arrays in groups that are no multiple of a word."""
    floats = not isinstance(queries, QuantArray) and queries.dtype.kind == "f"
    if floats and metric.quantize_queries is None:
        return
    for name, q in (("queries", queries), ("database", database)):
        if isinstance(q, QuantArray) and q.group is not None and q.group % WORD_BITS and q.group < q.shape[-1]:
            fix = "leave quantize_queries out" if floats else "pass queries as floats, as queries.dequantize() does"
            needed = f"groups of a multiple of {WORD_BITS} elements where queries are integers"
            raise ValueError(f"{op}: {name} must have {needed}, got {q.group}; {fix}")


def packed_bytes(name: str, value: Any, other: Any) -> str:
    """Say how to read an array that may be bytes of eight bits each, as other libraries store binary codes."""
    if not isinstance(value, np.ndarray) or value.dtype not in (np.uint8, np.int8) or value.ndim not in (1, 2):
        return ""
    shape = (*value.shape[:-1], 8 * value.shape[-1])
    if isinstance(other, QuantArray) and other.shape[-1:] != shape[-1:]:
        return ""
    data = name if value.dtype == np.uint8 else f"{name}.view(np.uint8) ^ 128"
    writer = "np.packbits and 'ubinary'" if value.dtype == np.uint8 else "'binary', each less 128,"
    signs = isinstance(other, QuantArray) and other.dtype == bipolar
    call = f"from_packbits({data}, {shape})"
    return f"; bytes of 8 bits, as {writer} of sentence-transformers pack them: {f'2 * {call} - 1' if signs else call}"


def selected(op: str, where: Any, n: int) -> Array | None:
    """Return the rows of a mask [n] or of ids, int64 in ascending order; None for all."""
    if where is None:
        return None
    mask = where.dequantize() if isinstance(where, QuantArray) and where.bits == 1 else where
    a = checks.numbers(op, "where", mask)
    if a.dtype == np.bool_ or isinstance(where, QuantArray):
        if a.shape != (n,):
            raise ValueError(f"{op}: where must be a mask [{n}] or ids of rows, got {a.dtype} {a.shape}")
        rows: Array = np.flatnonzero(a)
        return rows
    if a.ndim != 1 or (a.size and a.dtype.kind not in "iu"):
        raise TypeError(f"{op}: where must be a mask [{n}] or ids of rows, got {a.dtype} {a.shape}")
    if a.shape == (n,) and (n > 2 or a.dtype == np.uint8) and n and a.min() >= 0 and a.max() <= 1:
        raise ValueError(
            f"{op}: where is {a.dtype} {a.shape} of 0 and 1 alone, which may be a mask or ids; a mask is of bools, as "
            "where.astype(bool), and ids name each row once, as np.unique(where).astype(np.int64)"
        )
    return np.unique(checks.indices(op, a.astype(np.int64), n, 0))
