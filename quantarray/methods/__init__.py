"""Methods that call functions of `quantarray.ops`, attached to the classes below them when the package is imported."""

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
    """The methods that `QuantArray` inherits, as type checkers see them."""

    __slots__ = ()


def _attach() -> None:
    for chapter in (Elements, Operators, Reductions, Shaping):
        for name, method in vars(chapter).items():
            if name not in _OF_CLASSES:
                setattr(vars(array)["ArrayMethods"], name, method)
    Thresholds.__call__ = epilogue.apply  # type: ignore[method-assign, assignment]


_attach()
