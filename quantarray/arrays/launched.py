"""Calls on a GPU that are found: a second call of one form is recorded, and later ones only launch what it launched.

A call is found by its function, all its arguments but the arrays, and the forms of these: dtype, shape, axis, the
values of constants, device. Weights have their calls in their own cache, with their layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backends.registry import call_class
from ..core.bounded_cache import Kept
from ..core.dtypes import Array
from ..core.recordings import RECORDINGS, recording
from .array import CuQuantArray, QuantArray
from .layouts import LaidOut

_LINE = 16  # bytes at a multiple of which arrays begin that are read by the widest loads
_MOST = 8  # forms of constants for which a function is recorded

_calls = Kept(256)


class Launched:
    """A function of arrays, on a GPU by the launches that were recorded: equal, with little of Python around them.

    Attributes are those of the function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._plans: dict[Any, Any] = {}  # by constants: None after the first call, False for what is no plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __call__(self, *operands: Any, out: Array | None = None) -> Any:
        """Return what `function(*operands)` returns, or `function(*operands, out)`."""
        if out is not None:
            return self.function(*operands, out)
        arrays: tuple[Any, ...] = ()
        key: Any = ()
        for x in operands:
            packed = isinstance(x, QuantArray)
            a, values = (x._words, x._constants.key) if packed else (x, ())
            if values is None or type(a) is LaidOut or not (a.flags.c_contiguous and a.size) or a.data.ptr % _LINE:
                return self.function(*operands)
            arrays += (a,)
            key += (x._scheme, values) if packed else (None,)
        if RECORDINGS and recording("cuda") is not None:  # arrays have no elements, and the call is part of another
            return self.function(*operands)
        plan = self._plans.get(key, True)
        if plan is True:
            self._note(key, None)
            return self.function(*operands)
        if plan is None:
            plan = self._note(key, _recorded(self.function, operands, arrays))
        results = None if plan is False else plan(arrays)
        return self.function(*operands) if results is None else results

    def _note(self, key: Any, plan: Any) -> Any:
        self._plans[key] = plan
        if len(self._plans) > _MOST:
            self._plans.pop(next(iter(self._plans)), None)
        return plan


class _Plan:
    """A recorded call, with what makes results of its arrays."""

    def __init__(self, function: Callable[..., Any], operands: Sequence[Any], arrays: Sequence[Array]) -> None:
        self._laws: list[tuple[Any, ...] | None] = []
        self._single = True

        def on_arrays(*blanks: Array) -> list[Any]:
            pairs = zip(operands, blanks, strict=True)
            results = function(*(_like(x, blank) if isinstance(x, QuantArray) else blank for x, blank in pairs))
            self._single = type(results) is not tuple
            listed = [results] if self._single else [*results]
            self._laws = [_law(q) if isinstance(q, QuantArray) else None for q in listed]
            return [q._words if isinstance(q, QuantArray) else q for q in listed]

        self._call = call_class()(on_arrays, arrays)

    def __call__(self, operands: Sequence[Array]) -> Any:
        arrays = self._call(operands)
        if arrays is None:
            return None
        if self._single:
            law = self._laws[0]
            return arrays[0] if law is None else QuantArray(arrays[0], *law)
        pairs = zip(arrays, self._laws, strict=True)
        return tuple([one if law is None else QuantArray(one, *law) for one, law in pairs])


def _recorded(function: Callable[..., Any], operands: Sequence[Any], arrays: Sequence[Array]) -> _Plan | bool:
    """Record a function; False if it does more than launch kernels, which is then not tried again."""
    try:
        return _Plan(function, operands, arrays)
    except Exception:  # whatever is raised where elements are not there: the function is called with them
        return False


def _law(q: QuantArray) -> tuple[Any, ...]:
    return q._dtype, q._shape, q._axis, q._constants, q._scheme


def _like(q: QuantArray, words: Array) -> QuantArray:
    return QuantArray(words, *_law(q))


def on_gpu(function: Callable[..., Any], q: Any, *options: Any) -> Any:
    """Return `function(q, *options)`, by recorded launches where q is a packed array on a GPU."""
    if type(q) is not CuQuantArray:
        return function(q, *options)
    kinds: Any = tuple(map(type, options))  # 1 is not 1.0, though the two are equal
    if tuple in kinds:
        kinds = repr(options)
    key = function, q._dtype, q._shape, q._axis, q.device, options, kinds
    return by_key(key, function, q, *options)


def both_on_gpu(function: Callable[..., Any], p: QuantArray, q: QuantArray, *options: Any) -> Any:
    """Return `function(p, q, *options)` of two packed arrays, by recorded launches where they are on a GPU."""
    if type(p) is not CuQuantArray or type(q) is not CuQuantArray:
        return function(p, q, *options)
    return _of_key((function, p._form, q._form, options), function, options)(p, q)


def by_key(key: Any, function: Callable[..., Any], x: Any, *options: Any) -> Any:
    """Return `function(x, *options)`, by recorded launches; `key` has all that they depend on but x's constants."""
    return _of_key(key, function, options)(x)


def _of_key(key: Any, function: Callable[..., Any], options: tuple[Any, ...]) -> Launched:
    call: Launched | None = _calls.get(key)
    if call is None:
        call = Launched((lambda *operands: function(*operands, *options)) if options else function)
        _calls.keep(key, call)
    return call
