"""Values: algebra, functions of levels, comparison and logic, conversion out of the packed form."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import quantarray as qa

from ..drawing import INTEGERS, Draw, values
from .reducing import DENSE, whole

SMALL_LEVELS = ("bipolar", "ternary", "uint", "int", "steps")
ANY = dict(kinds=(*SMALL_LEVELS, "scaled", "uniform", "basis", "table"))
NUMPY = {
    "conj": "conjugate", "real": "real", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
    "atan": "arctan", "atanh": "arctanh", "atan2": "arctan2", "pow": "power",
}  # fmt: skip


def numpys(name: str) -> Any:
    return getattr(np, NUMPY.get(name, name))


def _unary(name: str, **drawn: Any) -> Any:
    def operation(d: Draw) -> Any:
        q, by_numpy = d.array(**drawn), d.flag(0.2)
        if by_numpy and name not in ("relu", "real", "bitwise_invert"):
            return lambda: numpys(name)(q), lambda: numpys(name)(values(q))
        if name == "relu":
            return lambda: qa.relu(q), lambda: np.maximum(values(q), 0)
        if name == "bitwise_invert":
            return lambda: ~q, lambda: 1 - values(q)
        return lambda: getattr(qa, name)(q), lambda: numpys(name)(values(q))

    return operation


TABLE = dict(kinds=("table",), interval=(0.05, 0.95))
LOW = dict(kinds=("table", "ternary", "bipolar", "uint"), interval=(-3.0, 3.0), bits=4)
SYMBOLS = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": operator.pow, "equal": operator.eq,
    "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}  # fmt: skip


def beside(d: Draw, q: Any) -> Any:
    """Draw a vector along one of the axes of q."""
    along, kind = d.between(0, q.ndim - 1), d.among(np.int64, np.float32)
    n = q.shape[along]
    dims = [n if i == along and n < 2**12 else 1 for i in range(q.ndim)]
    return d.dense(kind, tuple(dims), 1, 5)


def _binary(name: str, bits: int = 4, **drawn: Any) -> Any:
    """Return the operation `name` of an array and a number, a vector or another packed array.

    It is called by the operator or by the function, sometimes with the operands exchanged.
    """

    def operation(d: Draw) -> Any:
        kind, number = d.between(0, 3), d.among(1, 2, 3, 0.5)
        q = d.array(bits=bits, groups=0.02, **{"most": 2**25, **drawn})
        number = int(number) if whole(q) else number
        function = SYMBOLS.get(name, getattr(qa, name)) if d.flag() else getattr(qa, name)
        other = number
        if kind == 1:
            other = beside(d, q) if name in ("add", "subtract", "multiply") and q.axis not in (0, q.ndim) else number
        if kind > 1:
            other = d.alike(q, interval=drawn.get("interval"))
        a, b = (other, q) if kind == 0 and name not in ("pow", "floor_divide", "remainder", "divide") else (q, other)
        if name.startswith("logical") or name.startswith("bitwise"):
            other = d.alike(q)
            a, b = q, other
        reference = numpys(name)

        def expected() -> Any:
            x, y = (values(v) if isinstance(v, (qa.QuantArray, np.ndarray)) else v for v in (a, b))
            if name.startswith("bitwise"):
                x, y = x.astype(int), y.astype(int)
            return reference(x, y)

        return lambda: function(a, b), expected

    return operation


def _clip(d: Draw) -> Any:
    q, low = d.array(**ANY), d.between(-5, 3)
    return lambda: qa.clip(q, low, low + 2), lambda: np.clip(values(q), low, low + 2)


def _map(d: Draw) -> Any:
    q, f = d.array(**ANY), d.among(np.cbrt, np.abs, np.signbit)
    return lambda: qa.map(f, q), lambda: f(values(q))


def _map2(d: Draw) -> Any:
    q, f = d.array(bits=4, groups=0, kinds=(*SMALL_LEVELS, "table")), d.among(np.hypot, np.maximum, np.less)
    other = d.alike(q)
    return lambda: qa.map2(f, q, other), lambda: f(values(q), values(other))


def _divmod(d: Draw) -> Any:
    q, n = d.array(**ANY), d.between(1, 5)
    return lambda: divmod(q, n)


def _array_equal(d: Draw) -> Any:
    q, same = d.array(), d.flag()
    other = q.copy() if same else d.alike(q)
    return lambda: qa.array_equal(q, other), lambda: np.array_equal(values(q), values(other))


def _astype(d: Draw) -> Any:
    q, bits = d.array(bits=6, vary=0, groups=0), d.between(6, 8)  # a table of 8 bits a constant is a large result
    wanted = qa.table(bits)
    if q.dtype.is_integer and d.flag() and q.scale is None:
        levels = q.dtype.levels
        wanted = qa.integers(sorted({*levels, *range(-3, 3)}))
    return lambda: qa.astype(q, wanted), lambda: values(q)


def _out(name: str, most: int) -> Any:
    def operation(d: Draw) -> Any:
        q = d.array(most=most)
        return lambda: getattr(q, name)()

    return operation


def _properties(d: Draw) -> Any:
    q = d.array(groups=0.2)
    names = (
        "T axis bits constants device dtype group levels nbytes nbytes_cached ndim offset scale scheme shape size words"
    )
    return lambda: ([getattr(q, n) for n in names.split()], repr(q), q.to_device("cpu"), q.drop_cache())


def _dtypes(d: Draw) -> Any:
    q, other = d.array(kinds=INTEGERS), d.array(kinds=INTEGERS, bits=2)
    return lambda: (
        qa.result_type(q, other),
        qa.can_cast(q, other.dtype),
        qa.iinfo(q.dtype),
        qa.isdtype(q.dtype, "numeric"),
    )


ROUNDED = "abs ceil floor negative positive round sign trunc conj real isfinite isinf isnan signbit relu".split()
OPS = {
    **{name: _unary(name, **ANY) for name in ROUNDED},
    "square": _unary("square", **LOW),
    **{n: _unary(n, **LOW) for n in "atan asinh cos cosh exp expm1 sin sinh tan tanh".split()},
    **{n: _unary(n, **TABLE) for n in "acos asin atanh log1p reciprocal log log10 log2 sqrt".split()},
    "acosh": _unary("acosh", kinds=("table",), interval=(1.1, 9.0)),
    "logical_not": _unary("logical_not", **ANY),
    "bitwise_invert": _unary("bitwise_invert", law=(qa.uint1, False)),
    **{n: _binary(n, **LOW) for n in "add subtract multiply maximum minimum".split()},
    **{n: _binary(n, kinds=("table",), interval=(0.5, 4.0)) for n in "divide floor_divide remainder pow".split()},
    **{n: _binary(n, kinds=("table", "uint"), interval=(0.5, 4.0)) for n in "atan2 copysign hypot logaddexp".split()},
    **{n: _binary(n, 8) for n in "equal not_equal less less_equal greater greater_equal".split()},
    **{n: _binary(n, **ANY) for n in "logical_and logical_or logical_xor".split()},
    **{n: _binary(n, law=(qa.uint1, False)) for n in "bitwise_and bitwise_or bitwise_xor".split()},
    "clip": _clip, "map": _map, "map2": _map2, "divmod": _divmod, "array_equal": _array_equal, "astype": _astype,
    "codes": _out("codes", 2**25), "dequantize": _out("dequantize", DENSE), "copy": _out("copy", 2**26),
    "digest": _out("digest", 2**26), "to_device": _properties,
    "drop_cache": _properties, "result_type": _dtypes, "can_cast": _dtypes,
    "iinfo": _dtypes, "isdtype": _dtypes,
}  # fmt: skip
