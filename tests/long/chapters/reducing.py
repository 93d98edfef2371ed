"""Sums, means, extremes, counts, norms: over one axis, several, all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import quantarray as qa

from ..drawing import Draw, values

DENSE = 2**24  # elements of results with up to 8 bytes each
COUNTABLE = ("bipolar", "ternary", "uint", "int")


def axes(d: Draw, ndim: int) -> Any:
    """None, one axis, or a tuple of some."""
    one, some, kind = d.between(-ndim, ndim - 1), d.choices.random(ndim) < 0.5, d.between(0, 2)
    return (None, one, tuple(int(i) for i in np.flatnonzero(some)))[kind]


def way(d: Draw, name: str, q: Any) -> Callable[..., Any]:
    """Return the function `name` with q as its first argument: the module's, the method, or NumPy's."""
    kind = d.between(0, 2)
    if kind == 1 and hasattr(type(q), name):
        return getattr(q, name)
    module = np if kind == 2 and hasattr(np, name) and name not in ("counts",) else qa
    return lambda *args, **options: getattr(module, name)(q, *args, **options)


def _reduction(name: str, numpy: Any, most: int = 2**26, **drawn: Any) -> Any:
    def operation(d: Draw) -> Any:
        ndim = d.among(1, 2, 2, 3, 4)
        over = axes(d, ndim)
        q = d.array(ndim=ndim, most=most if over is None else DENSE, **drawn)
        call, keepdims = way(d, name, q), d.flag()
        where = None if over is None else over
        return (
            lambda: call(axis=where, keepdims=keepdims),
            lambda: numpy(values(q), axis=where, keepdims=keepdims),
        )

    return operation


def _sum_of_type(d: Draw) -> Any:
    q, kind = d.array(most=DENSE), d.among(np.int64, np.float32, np.float64)
    axis = d.axis(q)
    return lambda: qa.sum(q, axis, dtype=np.float64 if kind == np.int64 and not whole(q) else kind)


def whole(q: Any) -> bool:
    return q.dtype.is_integer and q.scale is None


def _counts(d: Draw) -> Any:
    ndim = d.among(1, 2, 3)
    over = axes(d, ndim)
    q = d.array(ndim=ndim, most=2**26 if over is None else 2**15)
    keepdims = d.flag()
    return lambda: qa.counts(q, over, keepdims=keepdims)


def _difference(x: Any, y: Any) -> Any:
    return np.abs(x - y)


def _map_reduce(d: Draw) -> Any:
    both, reduce, ndim = d.flag(), d.among("sum", "mean", "min", "max"), d.among(1, 2, 3)
    over = axes(d, ndim)
    kinds, most = (*COUNTABLE, "table", "uniform"), 2**26 if over is None else 2**22
    q = d.array(bits=4 if both else 8, ndim=ndim, most=most, kinds=kinds, vary=0)  # f gets all levels at once
    if not both:
        return lambda: qa.map_reduce(np.abs, q, axis=over, reduce=reduce)
    other = d.alike(q)
    return (
        lambda: qa.map_reduce(_difference, q, other, axis=over, reduce=reduce),
        lambda: getattr(np, reduce)(_difference(values(q), values(other)), axis=over),
    )


def _norm(d: Draw) -> Any:
    ndim, order = d.among(1, 2, 3), d.among(0, 1, 2, 3.5, np.inf, -np.inf)
    over = axes(d, ndim)
    q = d.array(ndim=ndim, most=2**26 if over is None else DENSE)
    return lambda: qa.linalg.vector_norm(q, axis=over, ord=order)


def _matrix_norm(d: Draw) -> Any:
    q, order = d.array(ndim=d.among(2, 3), most=DENSE), d.among("fro", 1, -1, np.inf, -np.inf)
    return lambda: qa.linalg.matrix_norm(q, ord=order)


def _diagonal(name: str) -> Any:
    def operation(d: Draw) -> Any:
        q, k = d.array(ndim=d.among(2, 3), vary=0, groups=0), d.between(-3, 3)
        return (
            lambda: getattr(qa.linalg, name)(q, offset=k),
            lambda: getattr(np, name)(values(q), offset=k, axis1=-2, axis2=-1),
        )

    return operation


def _cumulative(name: str, numpy: Any, **drawn: Any) -> Any:
    def operation(d: Draw) -> Any:
        q, initial = d.array(most=DENSE, **drawn), d.flag()
        axis = d.axis(q)
        if initial:
            return lambda: getattr(qa, name)(q, axis=axis, include_initial=True)
        return lambda: getattr(qa, name)(q, axis=axis), lambda: numpy(values(q), axis=axis)

    return operation


def _diff(d: Draw) -> Any:
    q, n, ends = d.array(most=DENSE, vary=0.1, groups=0), d.between(1, 3), d.flag(0.2)
    axis = d.axis(q)
    if ends:
        more = d.alike(q) if whole(q) else q
        return lambda: qa.diff(q, axis=axis, n=n, prepend=more, append=q)
    return lambda: qa.diff(q, axis=axis, n=n), lambda: np.diff(values(q), axis=axis, n=n)


OPS = {
    **{name: _reduction(name, getattr(np, name)) for name in "sum mean var std any all count_nonzero".split()},
    **{name: _reduction(name, getattr(np, name)) for name in "max min".split()},
    "prod": _reduction("prod", np.prod, kinds=("bipolar",)),
    "sum to a type": _sum_of_type,
    "counts": _counts,
    "map_reduce": _map_reduce,
    "cumulative_sum": _cumulative("cumulative_sum", np.cumsum),
    "cumulative_prod": _cumulative("cumulative_prod", np.cumprod, kinds=("bipolar", "table"), interval=(0.9, 1.1)),
    "diff": _diff,
    "linalg.vector_norm": _norm,
    "linalg.matrix_norm": _matrix_norm,
    "linalg.diagonal": _diagonal("diagonal"),
    "linalg.trace": _diagonal("trace"),
}
