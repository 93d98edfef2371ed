"""Methods that call functions of `quantarray.ops`, attached to the classes below them when the package is imported."""

from inspect import isfunction
from typing import Any

from ..arrays import array
from ..arrays.thresholds import Thresholds
from ..ops.products import epilogue
from .elements import Elements
from .operators import Operators
from .reductions import Reductions
from .shaping import Shaping

_OF_CLASSES = {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__slots__", "__firstlineno__"}
_OF_CLASSES |= {"__static_attributes__"}


class ArrayMethods(Elements, Operators, Reductions, Shaping):
    """A class of all methods that `QuantArray` inherits, as type checkers see them."""

    __slots__ = ()


def _call(self: Thresholds, values: Any, axis: int = -1) -> array.QuantArray:
    """Return the codes of a dense result, packed along its channel axis."""
    return epilogue.apply(self, values, axis)


def _attach() -> None:
    for chapter in (Elements, Operators, Reductions, Shaping):
        for name, method in vars(chapter).items():
            if name not in _OF_CLASSES:
                setattr(vars(array)["ArrayMethods"], name, method)
                if isfunction(method):
                    method.__qualname__ = f"QuantArray.{name}"
    Thresholds.__call__ = _call  # type: ignore[method-assign]
    _call.__qualname__ = "Thresholds.__call__"


_attach()
