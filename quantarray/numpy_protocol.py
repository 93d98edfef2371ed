"""NumPy's functions on packed arrays: `np.concatenate([p, q])` is `quantarray.concatenate([p, q])`.

A function or a ufunc of NumPy goes to the function of that name here, or of the name that the array API gives it, with
the arguments that its caller gave; those that are NumPy's defaults are left out. Functions without a counterpart, and
arguments that it does not take, raise a TypeError that names what to call instead. Nothing is unpacked.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import checks
from .core.refusals import reason
from .ops.elementwise import comparison, level_functions
from .ops.manipulation.flattening import flattened
from .ops.statistical import searching, sets

# NumPy's names of what has another name here
NAMES = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "around": "round",
    "conjugate": "conj", "cumprod": "cumulative_prod", "cumsum": "cumulative_sum", "fmax": "maximum",
    "fmin": "minimum", "invert": "bitwise_invert", "power": "pow", "rint": "round", "true_divide": "divide",
}  # fmt: skip

# Methods of ufuncs, along axis 0 if none is given
_METHODS = {
    ("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("maximum", "reduce"): "max",
    ("minimum", "reduce"): "min", ("logical_and", "reduce"): "all", ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumulative_sum", ("multiply", "accumulate"): "cumulative_prod",
}  # fmt: skip

# Names that both have, of which NumPy means something else
DIFFERENT = frozenset({"choose", "load", "save", "test", "testing"})

_ARGUMENTS = {"a_max": "max", "a_min": "min", "ddof": "correction"}
_OF_NO_MATTER = {"assume_unique", "kind", "optimize"}  # how NumPy computes, not what

_ADVICE = ".dequantize() gives values and .codes() codes"


def array_function(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer `__array_function__`."""
    adapted = _ADAPTED.get(func)
    if adapted is not None:
        return _called(func, adapted, args, kwargs)
    ours = of_function(func)
    if ours is None:
        raise TypeError(_refusal(_dotted(func), func.__name__))
    return _called(func, ours, *_without_defaults(func, args, kwargs))


def array_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer `__array_ufunc__`."""
    name = ufunc.__name__
    if method == "__call__":
        ours = of_ufunc(name)
        if ours is None:
            raise TypeError(_refusal(f"numpy.{name}", name, _by_levels(ufunc)))
    else:
        ours = _public(_METHODS.get((name, method), ""))
        if ours is None:
            raise TypeError(_refusal(f"numpy.{name}.{method}", name))
        kwargs = {"axis": 0} | {n: v for n, v in kwargs.items() if v is not None or n == "axis"}
    return _called(ufunc, ours, inputs, kwargs)


def of_function(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Find the function here that is one of NumPy's, by its module and name.

    >>> import numpy as np
    >>> of_function(np.amax).__name__, of_function(np.linalg.trace).__module__, of_function(np.median)
    ('max', 'quantarray.linalg', None)
    """
    name = func.__name__
    if getattr(np, name, None) is func:
        return _public(NAMES.get(name, name))
    return _public(name, "linalg") if getattr(np.linalg, name, None) is func else None


def of_ufunc(name: str) -> Callable[..., Any] | None:
    """Find the function here that is a ufunc of NumPy, or None.

    >>> of_ufunc("arctan").__name__, of_ufunc("add").__name__, of_ufunc("gcd")
    ('atan', 'add', None)
    """
    return _ADAPTED.get(getattr(np, name, None)) or _public(NAMES.get(name, name))


_public_names: dict[str | None, dict[str, Any]] = {}  # of the package, and of its chapters


def register(names: dict[str, Any], chapter: str | None = None) -> None:
    """Let NumPy's functions go to those of `names`, the public ones of the package or of a chapter such as `linalg`."""
    _public_names[chapter] = names


def is_public(name: str) -> bool:
    """Return True if the package has a function or a class of that name."""
    return callable(_public_names[None].get(name))


def _public(name: str, chapter: str | None = None) -> Callable[..., Any] | None:
    function = None if name in DIFFERENT else _public_names[chapter].get(name)
    return function if inspect.isfunction(function) else None


def _called(func: Any, ours: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """ours(*args, **kwargs), or a TypeError that says which arguments it takes."""
    signature = inspect.signature(ours)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        name = _dotted(func) if ours.__module__ == __name__ else f"quantarray.{ours.__name__}"
        takes = f"{name}{signature.replace(parameters=plain, return_annotation=signature.empty)}"
        raise TypeError(
            f"{_dotted(func)} does not take packed arrays with these arguments ({error}); it is {takes}, and {_ADVICE}"
        ) from None
    return ours(*args, **kwargs)


def _without_defaults(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return required arguments by place, and the others by the names that they have here, without NumPy's defaults."""
    try:
        parameters = inspect.signature(func).parameters
        passed = inspect.signature(func).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # written in C, without a signature
        return args, kwargs
    placed: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in passed.items():
        p = parameters[name]
        if p.kind is p.VAR_POSITIONAL:
            placed.extend(value)
        elif p.kind is p.VAR_KEYWORD:
            named.update(value)
        elif p.default is p.empty or p.kind is p.POSITIONAL_ONLY:
            placed.append(value)
        elif not _is(value, p.default) and name not in _OF_NO_MATTER:
            named[_ARGUMENTS.get(name, name)] = value
    return tuple(placed), named


def _is(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and isinstance(value, (bool, int, str, tuple))
                                and bool(value == default))  # fmt: skip


def _dotted(func: Any) -> str:
    return f"{getattr(func, '__module__', None) or 'numpy'}.{func.__name__}"


def _refusal(called: str, name: str, instead: str = "") -> str:
    """Say why a function of NumPy is refused: the reason of the array API's page, if it has one."""
    inside = "linalg." if called.startswith("numpy.linalg.") else ""
    why = reason(inside + NAMES.get(name, name)).replace(": ", ", ", 1)
    return f"{called} does not take packed arrays{why}: {instead}{_ADVICE}"


def _by_levels(ufunc: np.ufunc) -> str:
    if ufunc.nout != 1 or ufunc.nin > 2 or ufunc.signature is not None:
        return ""
    function, operands = ("map", "q") if ufunc.nin == 1 else ("map2", "p, q")
    return f"quantarray.{function}(np.{ufunc.__name__}, {operands}) gives a packed array, "


# Functions of NumPy that are no function here, or one with other arguments


def _size(a: Any, axis: Any = None) -> int:
    return math.prod(a.shape if axis is None else (a.shape[d] for d in checks.axes("size", axis, a.ndim)))


def _cumulated(name: str) -> Callable[..., Any]:
    def cumulated(a: Any, axis: Any = None, dtype: Any = None) -> Any:
        a, axis = (flattened(a), 0) if axis is None else (a, axis)
        return getattr(searching, name)(a, axis=axis, dtype=dtype)

    return cumulated


def _divmod(x1: Any, x2: Any) -> Any:
    return level_functions.floor_divide(x1, x2), level_functions.remainder(x1, x2)


def _transpose(a: Any, axes: Any = None) -> Any:
    return a.transpose(axes)


def _unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False) -> Any:
    if not (return_index or return_inverse):
        counted = sets.unique_counts(ar)
        return tuple(counted) if return_counts else counted.values
    every = sets.unique_all(ar)
    wanted = (True, return_index, return_inverse, return_counts)
    return tuple(a for a, want in zip(every, wanted, strict=True) if want)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    return searching.nonzero(condition) if x is None and y is None else comparison.where(condition, x, y)


_ADAPTED: dict[Any, Callable[..., Any]] = {
    np.copy: lambda a: a.copy(),
    np.cumprod: _cumulated("cumulative_prod"),  # which ask for an axis where there are several
    np.cumsum: _cumulated("cumulative_sum"),
    np.divmod: _divmod,
    np.iscomplexobj: lambda x: False,
    np.isrealobj: lambda x: True,
    np.ndim: lambda a: a.ndim,
    np.shape: lambda a: a.shape,
    np.size: _size,
    np.transpose: _transpose,
    np.unique: _unique,
    np.where: _where,
}
