"""Calls for each name of the array API standard that quantarray has, equal for a packed array and a plain one.

A call gets a namespace `xp`, an array `x` of it, and what was drawn, `d`, which both namespaces share.
"""

import numpy as np
from array_api_drawn import Case, dense
from hypothesis import assume
from hypothesis import strategies as st
from reductions import LENGTHS

import quantarray as qa


def unary(name, arrays="any", plain="same", room=None, ulps=1):
    return Case(lambda xp, x, d: getattr(xp, name)(x), arrays, plain, room, ulps=ulps)


def binary(name, arrays="small", plain="same", room=None, ulps=1):
    """Call f with an array of the same dtype, and with a number."""

    def call(xp, x, d):
        if d.flag("both packed"):
            return getattr(xp, name)(x, d.second(xp))
        return getattr(xp, name)(x, d.number())

    return Case(call, arrays, plain, room, summed=False, ulps=ulps)


def _truth(name):
    return Case(lambda xp, x, d: getattr(xp, name)(x != 0, d.second(xp) != 0))


def reduction(name, plain="same", room=None, filled=False, arrays="any"):
    def call(xp, x, d):
        return getattr(xp, name)(x, axis=d.axes, keepdims=d.flag("keepdims"))

    return Case(call, arrays, plain, room, filled=filled)


def _along(name):
    """Call f along one axis, or on all elements."""

    def call(xp, x, d):
        axis = d.axis if d.flag("one axis") else None
        return getattr(xp, name)(x, axis=axis, keepdims=d.flag("keepdims"))

    return Case(call, filled=True)


def _moments(name, square):
    def call(xp, x, d):
        correction = d.among("correction", 0, 0.5)
        return getattr(xp, name)(x, axis=d.axes, correction=correction, keepdims=d.flag("keepdims"))

    return Case(call, "any", "double", 1, square, filled=True)


def _take_along_axis(xp, x, d):
    n = d.q.shape[d.axis]
    assume(n > 0)
    shape = list(d.q.shape)
    shape[d.axis] = d("count", st.sampled_from(LENGTHS))
    return xp.take_along_axis(x, d.integers(xp, -n, n, shape), axis=d.axis)


def _repeat(xp, x, d):
    times = d.integers(xp, 0, 4, d.q.shape[d.axis]) if d.flag("each") else 3
    return xp.repeat(x, times, axis=d.axis)


def _meshgrid(xp, x, d):
    return xp.meshgrid(*[xp.arange(n) for n in d.shape], indexing=d.among("indexing", "xy", "ij"))


def _tile(xp, x, d):
    return xp.tile(x, d("repetitions", st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple)))


def _reshape(xp, x, d):
    x = xp.permute_dims(x, [i for i in range(d.q.ndim) if i != d.q.axis] + [d.q.axis])
    size = d.q.size
    first = d("first", st.sampled_from([n for n in range(1, max(size, 1) + 1) if size % n == 0][:12]))
    return xp.reshape(x, d.among("new", (first, size // first), (size,), (size // first, 1, first)))


def _searchsorted(xp, x, d):
    x = row(xp, x, d)
    return xp.searchsorted(x, xp.flip(x), side=d.among("side", "left", "right"), sorter=xp.argsort(x))


def _where(xp, x, d):
    return xp.where(d.mask(xp), x, d.second(xp))


def _diff(xp, x, d):
    more = {n: xp.flip(x, axis=0) for n in ("prepend", "append") if d.axis in (0, -d.q.ndim) and d.flag(n)}
    return xp.diff(x, axis=d.axis, n=d.between("n", 1, 3), **more)


def _clip(xp, x, d):
    low = d.number("low") - 2
    return xp.clip(x, low, low + d.number("more")) if d.flag("both") else xp.clip(x, max=low)


def _cumulative(name, **options):
    def call(xp, x, d):
        return getattr(xp, name)(x, axis=d.axis, include_initial=d.flag("include_initial"))

    return Case(call, **options)


def _product(function, shape_of_other):
    """Call f on x, packed last, and another array of its dtype."""

    def call(xp, x, d):
        x = xp.moveaxis(x, d.q.axis, -1)
        n = d.q.shape[d.q.axis]
        shape, axis = shape_of_other(d, n)
        q = d.other(shape=shape, axis=axis)
        return function(xp, x, q if xp is qa else d.plain(q))

    # Products are of constants, not of the levels that dequantize rounds to float32
    return Case(call, "factors", "wide", 2.0**17)


def row(xp, x, d):
    """Take one line of the packed axis."""
    assume(d.q.size)
    return x[tuple(slice(None) if i == d.q.axis else 0 for i in range(d.q.ndim))]


def matrices(xp, x, d):
    return xp.expand_dims(x, axis=0) if d.q.ndim == 1 else x


def _vector_norm(xp, x, d):
    return xp.linalg.vector_norm(x, axis=d.axes, ord=d.among("ord", 0, 1, 2, 3.5, np.inf))


def _matrix_norm(xp, x, d):
    ord_ = d.among("ord", "fro", 1, -1, np.inf, -np.inf)
    return xp.linalg.matrix_norm(matrices(xp, x, d), ord=ord_, keepdims=d.flag("keepdims"))


def _like(name, *args):
    return Case(lambda xp, x, d: getattr(xp, name)(x, *args), "signs")


def _dtype(xp, d, name="dtype"):
    """Take uint8 or int8, which both namespaces have."""
    return getattr(xp, d(name, st.sampled_from(["uint8", "int8"])))


KINDS = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric"]


def _iinfo(xp, x, d):
    info = xp.iinfo(_dtype(xp, d))
    return info.bits, info.min, info.max


_MATMUL = _product(lambda xp, x, y: xp.matmul(x, y), lambda d, n: ((n, 3), 0))
_TENSORDOT = _product(lambda xp, x, y: xp.tensordot(x, y, axes=((-1,), (1,))), lambda d, n: ((2, n), 1))
_VECDOT = _product(lambda xp, x, y: xp.vecdot(x, y), lambda d, n: ((n,), 0))
_MATRIX_TRANSPOSE = Case(lambda xp, x, d: xp.matrix_transpose(matrices(xp, x, d)))

CASES = {
    # creation
    "arange": Case(lambda xp, x, d: xp.arange(d.between("a", -99, 9), d.between("b", -9, 99), d.among("by", 1, 2, 5))),
    "empty": Case(lambda xp, x, d: xp.empty(d.shape).shape),
    "empty_like": Case(lambda xp, x, d: xp.empty_like(x).shape),
    "eye": Case(lambda xp, x, d: xp.eye(d.between("n", 0, 70), d.between("m", 0, 70), k=d.between("k", -70, 70))),
    "from_dlpack": Case(lambda xp, x, d: xp.from_dlpack(dense(xp, d.rng.integers(0, 256, d.shape).astype(np.uint8)))),
    "full": Case(lambda xp, x, d: xp.full(d.shape, d.between("fill", -128, 255))),
    "full_like": Case(lambda xp, x, d: xp.full_like(x, int(d.q.dtype.levels[0])), "signs"),
    "meshgrid": Case(_meshgrid),
    "ones": Case(lambda xp, x, d: xp.ones(d.shape)),
    "ones_like": Case(lambda xp, x, d: xp.ones_like(x == 0)),
    "zeros": Case(lambda xp, x, d: xp.zeros(d.shape)),
    "zeros_like": Case(lambda xp, x, d: xp.zeros_like(x == 0)),
    # dtypes
    "astype": Case(lambda xp, x, d: xp.astype(x, qa.table(8) if xp is qa else xp.float32)),
    "can_cast": Case(lambda xp, x, d: xp.can_cast(_dtype(xp, d, "from"), _dtype(xp, d))),
    "iinfo": Case(_iinfo),
    "isdtype": Case(lambda xp, x, d: xp.isdtype(_dtype(xp, d), d("kind", st.sampled_from(KINDS)))),
    "result_type": Case(lambda xp, x, d: xp.result_type(_dtype(xp, d), _dtype(xp, d)) == _dtype(xp, d)),
    # one array
    **{n: unary(n) for n in "abs ceil floor negative positive round sign trunc".split()},
    **{n: unary(n, plain="float") for n in "conj isfinite isinf isnan real signbit".split()},
    "square": unary("square", (-9.0, 9.0)),
    # NumPy's float32 loops over a table and over an array may differ by two units in the last place
    **{n: unary(n, (-4.0, 4.0), "float", 0, 2) for n in "atan asinh cos cosh exp expm1 sin sinh tan tanh".split()},
    **{n: unary(n, (0.05, 0.95), "float", 0, 2) for n in "acos asin atanh log1p reciprocal".split()},
    **{n: unary(n, (1, 40), "float", 0, 2) for n in "acosh log log10 log2 sqrt".split()},
    # two arrays, or an array and a number
    **{n: binary(n) for n in "maximum minimum".split()},
    **{n: binary(n, room=2.0**20) for n in "add subtract multiply".split()},
    "divide": binary("divide", (1, 9), "float", 0),
    **{n: binary(n, (1, 9)) for n in "floor_divide remainder".split()},
    "pow": binary("pow", (0, 3)),
    **{n: binary(n, plain="float", room=2.0**18, ulps=2) for n in "atan2 copysign hypot logaddexp".split()},
    **{n: binary(n, "any") for n in "equal not_equal less less_equal greater greater_equal".split()},
    **{n: _truth(n) for n in "logical_and logical_or logical_xor".split()},
    "logical_not": Case(lambda xp, x, d: xp.logical_not(x != 0)),
    **{
        n: Case(lambda xp, x, d, n=n: getattr(xp, n)(x, d.second(xp)), "bits", "bool")
        for n in "bitwise_and bitwise_or bitwise_xor".split()
    },
    "bitwise_invert": unary("bitwise_invert", "bits", "bool"),
    "clip": Case(_clip),
    # indexing
    "take": Case(lambda xp, x, d: xp.take(x, d.places(xp, d.axis), axis=d.axis)),
    "take_along_axis": Case(_take_along_axis),
    # linear algebra
    "matmul": _MATMUL,
    "matrix_transpose": _MATRIX_TRANSPOSE,
    "tensordot": _TENSORDOT,
    "vecdot": _VECDOT,
    # manipulation
    "broadcast_arrays": Case(lambda xp, x, d: xp.broadcast_arrays(x, xp.expand_dims(x, axis=0))),
    "broadcast_to": Case(lambda xp, x, d: xp.broadcast_to(x, (2, *(3 if n == 1 else n for n in d.q.shape)))),
    "concat": Case(lambda xp, x, d: xp.concat([x, d.second(xp), x], axis=d.axis)),
    "expand_dims": Case(lambda xp, x, d: xp.expand_dims(x, axis=d.place)),
    "flip": Case(lambda xp, x, d: xp.flip(x, axis=d.axes)),
    "moveaxis": Case(lambda xp, x, d: xp.moveaxis(x, d.axis, d.between("to", -d.q.ndim, d.q.ndim - 1))),
    "permute_dims": Case(lambda xp, x, d: xp.permute_dims(x, d.order)),
    "repeat": Case(_repeat),
    "reshape": Case(_reshape),
    "roll": Case(lambda xp, x, d: xp.roll(x, d.between("shift", -300, 300), axis=d.axis)),
    "squeeze": Case(lambda xp, x, d: xp.squeeze(xp.expand_dims(x, axis=d.place), axis=d.place)),
    "stack": Case(lambda xp, x, d: xp.stack([x, d.second(xp)], axis=d.place)),
    "tile": Case(_tile),
    "unstack": Case(lambda xp, x, d: xp.unstack(xp.expand_dims(x, axis=-1), axis=d.axis - (d.axis < 0))),
    # searching, sets, sorting
    "argmax": _along("argmax"),
    "argmin": _along("argmin"),
    "count_nonzero": reduction("count_nonzero"),
    "nonzero": Case(lambda xp, x, d: xp.nonzero(x)),
    "searchsorted": Case(_searchsorted),
    "where": Case(_where, "small"),
    **{n: unary(n) for n in "unique_all unique_counts unique_inverse unique_values".split()},
    "argsort": Case(lambda xp, x, d: xp.argsort(x, axis=d.axis, descending=d.flag("down"))),
    "sort": Case(lambda xp, x, d: xp.sort(x, axis=d.axis, descending=d.flag("down"))),
    # statistics
    "sum": reduction("sum", "wide", 1),
    "mean": reduction("mean", "double", 1),
    "prod": reduction("prod", arrays="signs"),
    "max": reduction("max", filled=True),
    "min": reduction("min", filled=True),
    "var": _moments("var", True),
    "std": _moments("std", False),
    "cumulative_sum": _cumulative("cumulative_sum", plain="wide", room=1),
    "cumulative_prod": _cumulative("cumulative_prod", arrays=(0.9, 1.1), plain="wide", room=0),
    # truth and differences
    "all": reduction("all"),
    "any": reduction("any"),
    "diff": Case(_diff),
    # the extension
    "linalg.diagonal": Case(lambda xp, x, d: xp.linalg.diagonal(matrices(xp, x, d), offset=d.between("k", -3, 3))),
    "linalg.matmul": _product(lambda xp, x, y: xp.linalg.matmul(x, y), lambda d, n: ((n, 3), 0)),
    "linalg.matrix_norm": Case(_matrix_norm, plain="double", room=1, filled=True),
    "linalg.matrix_transpose": Case(lambda xp, x, d: xp.linalg.matrix_transpose(matrices(xp, x, d))),
    "linalg.outer": Case(
        lambda xp, x, d: xp.linalg.outer(row(xp, x, d), row(xp, x, d)), "signs", filled=True
    ),
    "linalg.tensordot": _product(
        lambda xp, x, y: xp.linalg.tensordot(x, y, axes=((-1,), (1,))), lambda d, n: ((2, n), 1)
    ),
    "linalg.trace": Case(lambda xp, x, d: xp.linalg.trace(matrices(xp, x, d)), plain="wide", room=1),
    "linalg.vecdot": _product(lambda xp, x, y: xp.linalg.vecdot(x, y), lambda d, n: ((n,), 0)),
    "linalg.vector_norm": Case(_vector_norm, plain="double", room=1, filled=True),
}  # fmt: skip
