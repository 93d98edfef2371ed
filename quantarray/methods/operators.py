"""Python's operators on packed arrays: each is a function of `quantarray.ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..arrays.array import QuantArray
from ..arrays.exchange import is_on_gpu
from ..core.dtypes import Array
from ..core.hints import Bytes, Values
from ..ops.elementwise import arithmetic, comparison, level_functions, logic
from ..ops.products import matrix_product

_SHIFT = (
    "{} of packed arrays is refused: q * 2**n and q // 2**n are what it is for integers, and shift(q, n) moves the "
)
_SHIFT += "elements of a uint1 array along an axis"


def _is_matrix(x: Any) -> bool:
    return isinstance(x, (np.ndarray, QuantArray)) or is_on_gpu(x)


def _unary(function: Callable[[Any], QuantArray]) -> Callable[[Any], QuantArray]:
    def method(self: Any) -> QuantArray:
        return function(self)

    return method


def _binary(function: Callable[[Any, Any], QuantArray]) -> Callable[[Any, QuantArray | Values], QuantArray]:
    def method(self: Any, other: QuantArray | Values) -> QuantArray:
        return function(self, other)

    return method


def _reflected(function: Callable[[Any, Any], QuantArray]) -> Callable[[Any, Values], QuantArray]:
    def method(self: Any, other: Values) -> QuantArray:
        return function(other, self)

    return method


def _refused(name: str) -> Callable[[Any, Any], NoReturn]:
    def method(self: Any, other: Any) -> NoReturn:
        raise TypeError(_SHIFT.format(name))

    return method


def _divmod(self: Any, other: QuantArray | Values) -> tuple[QuantArray, QuantArray]:
    return self // other, self % other


def _reflected_divmod(self: Any, other: Values) -> tuple[QuantArray, QuantArray]:
    return other // self, other % self


def _pow(self: Any, other: QuantArray | Values, modulus: None = None) -> QuantArray:
    if modulus is not None:
        raise TypeError("pow of packed arrays takes no modulus: (q ** n) % m is what it is for integers")
    return level_functions.pow(self, other)


class Operators:
    """A mixin of elementwise operators, and `@`."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # `==` is elementwise

    __pos__ = _unary(arithmetic.positive)
    __neg__ = _unary(arithmetic.negative)
    __abs__ = _unary(level_functions.abs)
    __invert__ = _unary(logic.bitwise_invert)

    __add__, __radd__ = _binary(arithmetic.add), _reflected(arithmetic.add)
    __sub__, __rsub__ = _binary(arithmetic.subtract), _reflected(arithmetic.subtract)
    __mul__, __rmul__ = _binary(arithmetic.multiply), _reflected(arithmetic.multiply)
    __truediv__, __rtruediv__ = _binary(arithmetic.divide), _reflected(arithmetic.divide)
    __floordiv__, __rfloordiv__ = _binary(level_functions.floor_divide), _reflected(level_functions.floor_divide)
    __mod__, __rmod__ = _binary(level_functions.remainder), _reflected(level_functions.remainder)
    __divmod__, __rdivmod__ = _divmod, _reflected_divmod
    __pow__, __rpow__ = _pow, _reflected(level_functions.pow)

    __lt__ = _binary(comparison.less)
    __le__ = _binary(comparison.less_equal)
    __gt__ = _binary(comparison.greater)
    __ge__ = _binary(comparison.greater_equal)

    def __eq__(self: Any, other: QuantArray | Values) -> QuantArray:  # type: ignore[override]
        return comparison.equal(self, other)

    def __ne__(self: Any, other: QuantArray | Values) -> QuantArray:  # type: ignore[override]
        return comparison.not_equal(self, other)

    __and__, __rand__ = _binary(logic.bitwise_and), _reflected(logic.bitwise_and)
    __or__, __ror__ = _binary(logic.bitwise_or), _reflected(logic.bitwise_or)
    __xor__, __rxor__ = _binary(logic.bitwise_xor), _reflected(logic.bitwise_xor)

    def __matmul__(self: Any, other: QuantArray | Bytes) -> Array:
        return matrix_product.matmul(self, other) if _is_matrix(other) else NotImplemented

    def __rmatmul__(self: Any, other: Bytes) -> Array:
        return matrix_product.matmul(other, self) if _is_matrix(other) else NotImplemented

    if not TYPE_CHECKING:  # type checkers say that there is no such operator
        __lshift__, __rlshift__ = _refused("<<"), _refused("<<")
        __rshift__, __rrshift__ = _refused(">>"), _refused(">>")
