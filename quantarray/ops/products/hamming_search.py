"""Search of binary codes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import common_device, contiguous, empty, kernel
from ...core.dtypes import Array, bipolar, uint1
from ...core.hints import Bools
from .operand import bits

OP = "top_k"


class Nearest(NamedTuple):
    """A result of `top_k`, nearest first: both int64 [queries k], or [k] of one query."""

    distances: Array
    indices: Array


def top_k(queries: QuantArray | Bools, database: QuantArray | Bools, k: int) -> Nearest:
    """Find the k rows of a database of binary codes that are nearest to each query by Hamming distance.

        distances[q, i] = number of places where queries[q] and database[indices[q, i]] differ

    queries: 1-bit QuantArray [m d], or [d]; database: the same dtype, [n d]; both packed on the last axis. Arrays of
    bools are packed for the call, as uint1; pack a database once with `encode(database, values=uint1)`. Nearest first,
    of equal distances the lower index first. The database is read once for all queries, and distances are stored
    nowhere. Constants do not count. For levels -1 and 1, `d - 2 * distances` are the products.

    Raises TypeError for more than one bit or different dtypes, ValueError where shapes or k do not fit.

    >>> import quantarray as qa
    >>> codes = qa.encode([[1, 1, 1], [1, -1, 1], [-1, -1, -1]], values=(-1, 1))
    >>> qa.top_k(qa.encode([1, -1, -1], values=(-1, 1)), codes, 2)
    Nearest(distances=array([1, 1]), indices=array([1, 2]))
    """
    hints = _packed_bytes("queries", queries, database), _packed_bytes("database", database, queries)
    queries, database = bits(OP, "queries", queries, hints[0]), bits(OP, "database", database, hints[1])
    device = common_device(OP, queries=queries, database=database)
    _check(queries, database)
    k = checks.integer(OP, "k", k, 1)
    if k > database.shape[0]:
        raise ValueError(f"{OP}: k must be at most the {database.shape[0]} rows of database {database.shape}, got {k}")
    rows, asked = (contiguous(q.words[0]) for q in (database, queries))
    out = empty(device, (2, len(queries) if queries.ndim == 2 else 1, k), np.int64)
    kernel(device, "nearest")(rows, asked.reshape(out.shape[1], rows.shape[1]), out)
    return Nearest(*(a if queries.ndim == 2 else a[0] for a in out))


def _packed_bytes(name: str, value: Any, other: Any) -> str:
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


def _check(queries: Any, database: Any) -> None:
    for name, q, axes in (("queries", queries, (1, 2)), ("database", database, (2,))):
        if q.bits != 1:
            raise TypeError(f"{OP}: {name} must have 1 bit an element, got {q.dtype}; hamming(a, b) takes any dtype")
        if q.ndim not in axes or q.axis != q.ndim - 1:
            raise ValueError(
                f"{OP}: {name} must be [rows bits]{' or [bits]' if 1 in axes else ''} packed on the last axis, got "
                f"{q.shape} packed on axis {q.axis}"
            )
    if queries.dtype != database.dtype:
        both = {queries.dtype: "queries", database.dtype: "database"}
        fix = f"; 2 * {both[uint1]} - 1 is bipolar" if both.keys() == {uint1, bipolar} else ""
        raise TypeError(
            f"{OP}: queries and database must have one dtype, or codes mean different things, got {queries.dtype} and "
            f"{database.dtype}{fix}"
        )
    if queries.shape[-1] != database.shape[-1]:
        raise ValueError(
            f"{OP}: queries {queries.shape} have {queries.shape[-1]} bits a row, database {database.shape} has "
            f"{database.shape[-1]}"
        )
