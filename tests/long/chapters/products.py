"""Products: matrices, vectors, contractions, distances, search."""

from __future__ import annotations

from typing import Any

import numpy as np

import quantarray as qa

from ..drawing import Draw, values
from .reducing import axes, way

WORK = 2**29  # products of single elements in one call
FACTORS = ("bipolar", "ternary", "uint", "int", "steps", "uneven", "scaled", "uniform", "basis")
RESULT = 2**22  # elements


def factor(d: Draw, rows: int, k: int, bits: int = 8) -> Any:
    """Draw a matrix [rows k] that is packed on its last axis."""
    law = d.dtype(bits, FACTORS if d.flag(0.9) else ("wide", "table"))
    return d.array(shape=(rows, k), axis=1, law=law, vary=0.2 if d.flag(0.2) else 0, groups=0)


def checked(call: Any, numpy: Any, *arrays: Any) -> Any:
    """Return the call, with NumPy's call unless levels are wide: `tests.long products` checks those exactly."""
    wide = any(q.dtype.is_integer and q.dtype.max_abs > 2**15 for q in arrays)
    return call if wide else (call, numpy)


def sizes(d: Draw) -> tuple[int, int, int]:
    """Draw the rows, contracted elements and outputs of a product: of any proportions, of bounded work."""
    rows, k, outputs = d.length(2**14), d.length(2**22), d.length(2**14)
    while rows * outputs > RESULT or rows * k * outputs > WORK:
        rows, outputs = max(1, rows // 2), max(1, outputs // 2)
    return rows, min(k, WORK // (rows * outputs)), outputs


def pair(d: Draw) -> tuple[Any, Any]:
    """x [rows k] and w [outputs k]; the words of each are at most MOST_BYTES, so k may be cut."""
    rows, k, outputs = sizes(d)
    x, w = factor(d, rows, k), factor(d, outputs, k)
    n = min(x.shape[1], w.shape[1])
    return (x, w) if x.shape[1] == w.shape[1] else (x[:, :n], w[:, :n])


def _linear(d: Draw) -> Any:
    x, w = pair(d)
    bias, requantize = d.flag(0.3), d.flag(0.2)
    options: dict[str, Any] = {"bias": d.dense(np.int64, w.shape[:1])} if bias else {}
    if requantize:
        options["requantize"] = qa.Thresholds(np.sort(d.choices.integers(-50, 50, d.between(1, 3))), per_channel=False)
        return lambda: qa.linear(x, w, **options)
    return checked(lambda: qa.linear(x, w, **options), lambda: values(x) @ values(w).T + options.get("bias", 0), x, w)


def _matmul(d: Draw) -> Any:
    x, w = pair(d)
    by_operator = d.flag()
    return checked(lambda: x @ w.T if by_operator else qa.matmul(x, w.T), lambda: values(x) @ values(w).T, x, w)


def _batched(d: Draw) -> Any:
    batch, rows, k, outputs = d.between(1, 5), d.length(100), d.length(2**12), d.length(100)
    law = d.dtype(4, FACTORS)
    x = d.array(shape=(batch, rows, k), axis=2, law=law, vary=0, groups=0)
    w = d.array(shape=(batch, k, outputs), axis=1, law=law, vary=0, groups=0)
    return checked(lambda: qa.matmul(x, w), lambda: values(x) @ values(w), x, w)


def _dense(d: Draw) -> Any:
    """int8 or uint8 by packed."""
    rows, k, outputs = sizes(d)
    x, w = d.dense(d.among(np.int8, np.uint8), (rows, min(k, 2**22 // rows or 1)), 0, 100), None
    w = factor(d, outputs, x.shape[1], 4)
    x = x[:, : w.shape[1]]
    return checked(lambda: qa.linear(x, w), lambda: values(x) @ values(w).T, w)


def _contraction(name: str) -> Any:
    def operation(d: Draw) -> Any:
        x, w = pair(d)
        if name == "inner":
            return checked(lambda: qa.inner(x, w), lambda: np.inner(values(x), values(w)), x, w)
        if name == "tensordot":
            return lambda: qa.tensordot(x, w, ((1,), (1,)))
        if name == "dot":
            return checked(lambda: qa.dot(x, w.T), lambda: values(x) @ values(w).T, x, w)
        text = d.among("ik,jk->ij", "ik,jk->ji")
        return checked(lambda: qa.einsum(text, x, w), lambda: np.einsum(text, values(x), values(w)), x, w)

    return operation


def _einsum_of_one(d: Draw) -> Any:
    q, text = d.array(ndim=2, most=2**23), d.among("ik->k", "ik->i", "ik->ki", "ik->")
    return lambda: qa.einsum(text, q), lambda: np.einsum(text, values(q))


def _vectors(d: Draw) -> Any:
    q = d.array(ndim=1, kinds=FACTORS, vary=0, groups=0)
    other, call = d.alike(q), way(d, d.among("dot", "vecdot", "inner"), q)
    return lambda: call(other), lambda: np.dot(values(q), values(other))


def _vecdot(d: Draw) -> Any:
    q = d.array(kinds=("bipolar", "ternary", "uint", "int"), ndim=d.among(1, 2, 3), most=2**23)
    other, axis = d.alike(q), d.axis(q)
    return lambda: qa.vecdot(q, other, axis=axis), lambda: (values(q) * values(other)).sum(axis)


def _hamming(d: Draw) -> Any:
    q = d.array(ndim=d.among(1, 2, 3), most=2**23)
    over = axes(d, q.ndim)
    other = d.alike(q)
    return lambda: qa.hamming(q, other, over), lambda: (q.codes() != other.codes()).sum(over)


def _outer(d: Draw) -> Any:
    a = d.array(ndim=1, most=2**11, groups=0)
    b = d.array(ndim=1, most=2**11, groups=0)
    return lambda: qa.outer(a, b), lambda: np.outer(values(a), values(b))


def _top_k(d: Draw) -> Any:
    queries, rows, n, k = d.length(2**8), d.length(2**17), d.length(2**12), d.between(1, 10)
    n = max(1, min(n, WORK * 4 // (queries * rows)))
    database = d.array(shape=(rows, n), axis=1, law=(qa.bipolar, False))
    some = d.array(shape=(queries, database.shape[1]), axis=1, law=(qa.bipolar, False))
    return lambda: qa.top_k(some, database, min(k, database.shape[0]))


def _within(d: Draw) -> Any:
    n = d.length(2**10)
    database = d.array(shape=(d.length(2**14), n), axis=1, law=(qa.uint1, False))
    some = d.array(shape=(d.length(2**5), database.shape[1]), axis=1, law=(qa.uint1, False))
    metric = d.among("hamming", "jaccard", "dice", "tversky")
    return lambda: qa.within(some, database, n // 4 if metric == "hamming" else 0.9, metric)


def _top_k_of_products(d: Draw) -> Any:
    database = factor(d, d.length(2**12), d.length(2**9))
    some, k = factor(d, d.length(2**5), database.shape[1]), d.between(0, 2**9)
    metric = d.among("dot", "cosine", "l2")
    return lambda: qa.top_k(some, database, min(k, database.shape[0]), metric)


def _rescore(d: Draw) -> Any:
    rows, n = d.dense(np.float32, (d.length(2**12), d.length(2**9))), d.length(2**5)
    asked = d.dense(np.float32, (n, rows.shape[1]))
    near = d.dense(np.int64, (n, d.length(2**6)), 0, len(rows) - 1)
    metric = d.among("dot", "cosine", "l2")
    return lambda: qa.rescore(near, asked, rows, near.shape[1], metric)


def _explain(d: Draw) -> Any:
    x, w = pair(d)
    return lambda: qa.explain(qa.linear, x, w)


def _on(d: Draw) -> Any:
    x, w = pair(d)
    return checked(lambda: qa.on("cpu", qa.linear, x, w), lambda: values(x) @ values(w).T, x, w)


OPS = {
    "linear": _linear, "matmul": _matmul, "matmul of batches": _batched, "linear of bytes": _dense,
    **{name: _contraction(name) for name in "inner tensordot dot einsum".split()},
    "einsum of one": _einsum_of_one, "dot of vectors": _vectors, "vecdot": _vecdot, "hamming": _hamming,
    "outer": _outer, "top_k": _top_k, "top_k of products": _top_k_of_products,
    "within": _within, "rescore": _rescore, "explain": _explain, "on": _on,
}  # fmt: skip
WEIGHTS = {"linear": 3.0, "matmul": 2.0, "explain": 0.2, "on": 0.2}
