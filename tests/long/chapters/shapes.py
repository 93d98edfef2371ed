"""Shapes, orders, joins and repetitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import quantarray as qa

from ..drawing import Draw, values
from .reducing import way, whole

REPEATED = 2**24  # elements of results that repeat


def _reshape(d: Draw) -> Any:
    q = d.array(vary=0.05, groups=0.02)
    how, size = d.between(0, 3), q.size
    factor = next((n for n in (64, 6, 4, 3, 2) if size % n == 0), 1)
    new = ((-1,), (factor, -1), (-1, factor), (*q.shape[:-1], 1, q.shape[-1]))[how]
    new = (size,) if not size else new
    call = q.reshape if d.flag() else lambda *shape: qa.reshape(q, shape)
    return lambda: call(*new), lambda: values(q).reshape(new)


def _ravel(d: Draw) -> Any:
    q, name = d.array(vary=0, groups=0), d.among("ravel", "flatten")
    return lambda: getattr(q, name)(), lambda: values(q).ravel()


def _permute(d: Draw) -> Any:
    q, name = d.array(), d.among("transpose", "permute_dims")
    order = tuple(int(i) for i in d.choices.permutation(q.ndim))
    return lambda: getattr(qa, name)(q, order), lambda: values(q).transpose(order)


def _swap(name: str) -> Any:
    def operation(d: Draw) -> Any:
        q = d.array()
        a, b = d.axis(q), d.axis(q)
        call = way(d, name, q)
        return lambda: call(a, b), lambda: getattr(np, name)(values(q), a, b)

    return operation


def _matrix_transpose(d: Draw) -> Any:
    q = d.array(ndim=d.among(2, 3))
    return lambda: qa.matrix_transpose(q), lambda: np.swapaxes(values(q), -1, -2)


def _repack(d: Draw) -> Any:
    q = d.array(groups=0)
    axis = d.axis(q)
    return lambda: q.repack(axis) if q.ndim % 2 else qa.repack(q, axis), lambda: values(q)


def _expand(d: Draw) -> Any:
    q = d.array()
    at = d.between(-q.ndim - 1, q.ndim)
    return lambda: qa.expand_dims(q, at), lambda: np.expand_dims(values(q), at)


def _squeeze(d: Draw) -> Any:
    q = d.array()
    at = d.between(0, q.ndim)
    return lambda: qa.squeeze(qa.expand_dims(q, at), at), lambda: values(q)


def _flip(d: Draw) -> Any:
    q, everything = d.array(), d.flag()
    axis = None if everything else d.axis(q)
    return lambda: qa.flip(q, axis), lambda: np.flip(values(q), axis)


def _rot90(d: Draw) -> Any:
    q, k = d.array(ndim=d.among(2, 3)), d.between(-1, 4)
    axes = d.among((0, 1), (1, 0), (-1, 0))
    return lambda: qa.rot90(q, k, axes), lambda: np.rot90(values(q), k, axes)


def _roll(d: Draw) -> Any:
    q, flat, by = d.array(vary=0.1, groups=0.02), d.flag(0.2), d.between(-300, 300)
    axis = d.axis(q)
    if flat:
        return lambda: qa.roll(q, by), lambda: np.roll(values(q), by)
    return lambda: qa.roll(q, by, axis), lambda: np.roll(values(q), by, axis)


def _shift(d: Draw) -> Any:
    q, by = d.array(law=(qa.uint1, False)), d.between(-300, 300)
    axis = d.axis(q)
    return lambda: qa.shift(q, by, axis)


def _tile(d: Draw) -> Any:
    q = d.array(most=REPEATED, groups=0)
    reps = tuple(d.between(0, 3) for _ in range(d.between(1, q.ndim + 1)))
    reps = reps if math.prod(reps) * q.size <= 2 * REPEATED else (2,)
    return lambda: qa.tile(q, reps), lambda: np.tile(values(q), reps)


def _repeat(d: Draw) -> Any:
    q, flat, each = d.array(most=2**23, groups=0), d.flag(0.2), d.flag()
    axis = None if flat else d.axis(q)
    times: Any = d.between(0, 3)
    if each:
        times = d.dense(np.int64, (q.size if flat else q.shape[axis],), 0, 3)
    call = way(d, "repeat", q)
    return lambda: call(times, axis), lambda: np.repeat(values(q), times, axis)


def _broadcast_to(d: Draw) -> Any:
    q = d.array(most=2**22)
    shape = (d.between(1, 4), *(d.between(1, 4) if n == 1 else n for n in q.shape))
    return lambda: qa.broadcast_to(q, shape), lambda: np.broadcast_to(values(q), shape)


def _broadcast_arrays(d: Draw) -> Any:
    q = d.array(most=2**22)
    return lambda: qa.broadcast_arrays(q, qa.expand_dims(q, 0))


def _meshgrid(d: Draw) -> Any:
    arrays, indexing = [d.array(ndim=1, most=2**11, groups=0) for _ in range(2)], d.among("xy", "ij")
    return lambda: qa.meshgrid(*arrays, indexing=indexing)


def _join(name: str) -> Any:
    def operation(d: Draw) -> Any:
        q, one_law = d.array(vary=0.05, groups=0.02, most=REPEATED, bits=6), d.flag(0.9)
        at = d.axis(q)
        if whole(q) and one_law:
            longer = [*q.shape]
            longer[at] = d.length(2**8) if name in ("concatenate", "concat") else longer[at]
            other = d.alike(q, shape=tuple(longer) if math.prod(longer) <= REPEATED else q.shape)
        else:
            other = q
        arrays = [q, other, q][: 2 + d.flag()]
        if name in ("concatenate", "concat", "stack"):
            fits = (
                other.shape[: at % q.ndim] + other.shape[at % q.ndim + 1 :]
                == q.shape[: at % q.ndim] + q.shape[at % q.ndim + 1 :]
            )
            arrays = arrays if fits and (name != "stack" or other.shape == q.shape) else [q, q]
            numpy = np.stack if name == "stack" else np.concatenate
            return lambda: getattr(qa, name)(arrays, at), lambda: numpy([values(a) for a in arrays], at)
        arrays = arrays if other.shape == q.shape else [q, q]
        return lambda: getattr(qa, name)(arrays), lambda: getattr(np, name)([values(a) for a in arrays])

    return operation


def _split(name: str) -> Any:
    def operation(d: Draw) -> Any:
        q, parts, by_places = d.array(groups=0), d.between(1, 5), d.flag()
        axis = d.axis(q)
        n = q.shape[axis]
        where: Any = (
            sorted(d.below(n + 1) for _ in range(3)) if by_places else parts if n % parts == 0 or name != "split" else 1
        )
        return lambda: getattr(qa, name)(q, where, axis)

    return operation


def _unstack(d: Draw) -> Any:
    q = d.array(ndim=d.among(2, 3), most=2**20, groups=0)
    axis = d.axis(q)
    part = q[tuple(slice(0, 16) if i == axis % q.ndim else slice(None) for i in range(q.ndim))]
    return lambda: qa.unstack(part, axis)


def _iterate(d: Draw) -> Any:
    q = d.array(ndim=d.among(1, 2), most=2**9, groups=0)
    return lambda: (list(q), len(q))


def _pad(d: Draw) -> Any:
    q, edge = d.array(vary=0, groups=0, kinds=("ternary", "uint", "int", "bipolar", "scaled")), d.flag()
    widths = [(d.between(0, 70), d.between(0, 3)) if n < 2**12 else (1, 0) for n in q.shape]
    widths = widths if q.size < 2**16 else [(1, 2)] * q.ndim
    big = math.prod(n + sum(w) for n, w in zip(q.shape, widths, strict=True)) > REPEATED
    if big and q.ndim > 1:
        widths = [(0, 0)] * (q.ndim - 1) + [(1, 1)]
    if edge:
        return lambda: qa.pad(q, widths, "edge"), lambda: np.pad(values(q), widths, "edge")
    value = float(q.levels.ravel()[0])
    return lambda: qa.pad(q, widths, constant_values=value), lambda: np.pad(values(q), widths, constant_values=value)


OPS = {
    "reshape": _reshape, "ravel": _ravel,
    "flatten": _ravel, "transpose": _permute, "permute_dims": _permute,
    "swapaxes": _swap("swapaxes"), "moveaxis": _swap("moveaxis"), "matrix_transpose": _matrix_transpose,
    "repack": _repack, "expand_dims": _expand, "squeeze": _squeeze, "flip": _flip, "rot90": _rot90, "roll": _roll,
    "shift": _shift, "tile": _tile, "repeat": _repeat, "broadcast_to": _broadcast_to,
    "broadcast_arrays": _broadcast_arrays, "meshgrid": _meshgrid,
    **{name: _join(name) for name in "concatenate concat stack vstack hstack".split()},
    "split": _split("split"), "array_split": _split("array_split"), "unstack": _unstack, "iterate": _iterate,
    "pad": _pad,
}  # fmt: skip
