"""Python's operators on packed arrays: each is a function of `quantarray.ops`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from .array import QuantArray
    from .hints import Values

_SHIFT = (
    "{} of packed arrays is refused: q * 2**n and q // 2**n are what it is for integers, and shift(q, n) moves the "
)
_SHIFT += "elements of a uint1 array along an axis"


def _function(module: str, name: str) -> Callable[..., Any]:
    # A local import: the ops import the array
    found: Callable[..., Any] = getattr(import_module(f".ops.{module}", __package__), name)
    return found


def _unary(module: str, name: str) -> Callable[[Any], QuantArray]:
    def method(self: Any) -> QuantArray:
        made: QuantArray = _function(module, name)(self)
        return made

    return method


def _binary(module: str, name: str) -> Callable[[Any, QuantArray | Values], QuantArray]:
    def method(self: Any, other: QuantArray | Values) -> QuantArray:
        made: QuantArray = _function(module, name)(self, other)
        return made

    return method


def _reflected(module: str, name: str) -> Callable[[Any, Values], QuantArray]:
    def method(self: Any, other: Values) -> QuantArray:
        made: QuantArray = _function(module, name)(other, self)
        return made

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
    made: QuantArray = _function("elementwise", "pow")(self, other)
    return made


_equal, _not_equal = _binary("comparison", "equal"), _binary("comparison", "not_equal")


class Operators:
    """Elementwise operators; `==` is one of them, so arrays are unhashable."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    __pos__ = _unary("algebra", "positive")
    __neg__ = _unary("algebra", "negative")
    __abs__ = _unary("elementwise", "abs")
    __invert__ = _unary("logic", "bitwise_invert")

    __add__, __radd__ = _binary("algebra", "add"), _reflected("algebra", "add")
    __sub__, __rsub__ = _binary("algebra", "subtract"), _reflected("algebra", "subtract")
    __mul__, __rmul__ = _binary("algebra", "multiply"), _reflected("algebra", "multiply")
    __truediv__, __rtruediv__ = _binary("algebra", "divide"), _reflected("algebra", "divide")
    __floordiv__, __rfloordiv__ = _binary("elementwise", "floor_divide"), _reflected("elementwise", "floor_divide")
    __mod__, __rmod__ = _binary("elementwise", "remainder"), _reflected("elementwise", "remainder")
    __divmod__, __rdivmod__ = _divmod, _reflected_divmod
    __pow__, __rpow__ = _pow, _reflected("elementwise", "pow")

    __lt__ = _binary("comparison", "less")
    __le__ = _binary("comparison", "less_equal")
    __gt__ = _binary("comparison", "greater")
    __ge__ = _binary("comparison", "greater_equal")

    def __eq__(self, other: QuantArray | Values) -> QuantArray:  # type: ignore[override]
        return _equal(self, other)

    def __ne__(self, other: QuantArray | Values) -> QuantArray:  # type: ignore[override]
        return _not_equal(self, other)

    __and__, __rand__ = _binary("logic", "bitwise_and"), _reflected("logic", "bitwise_and")
    __or__, __ror__ = _binary("logic", "bitwise_or"), _reflected("logic", "bitwise_or")
    __xor__, __rxor__ = _binary("logic", "bitwise_xor"), _reflected("logic", "bitwise_xor")
    if not TYPE_CHECKING:  # type checkers say that there is no such operator
        __lshift__, __rlshift__ = _refused("<<"), _refused("<<")
        __rshift__, __rrshift__ = _refused(">>"), _refused(">>")
