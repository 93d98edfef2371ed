"""A call on a device: its operands are moved there, its results back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..arrays.array import QuantArray
from ..backends.registry import current, namespace
from .words.placement import asnumpy, device

P = ParamSpec("P")
T = TypeVar("T")

_NUMBERS = "biuf"  # kinds of dense arrays that a GPU takes


def on(device_name: str, function: Callable[P, T], /, *arrays: P.args, **named: P.kwargs) -> T:
    """`function(*arrays, **named)` on a device: arrays are moved there, and arrays of its result to the CPU.

    QuantArrays, NumPy arrays of numbers, layers and networks move, in tuples, lists and dicts of any depth, each once
    however often it occurs; so does the function if it is a layer or a network. Inside, new arrays are made on the
    device. All else is passed as it is, and the arguments themselves stay where they are. If the function raises, the
    arrays in its exception's arguments come back too.

    Every call moves its arguments again. For many calls with the same weights, move those yourself, with `.to_device`.

    >>> import quantarray as qa
    >>> x, w = qa.encode([[1, -1]], (-1, 1)), qa.encode([[1, 1], [1, -1]], (-1, 1))
    >>> qa.on("cpu", qa.linear, x, w)
    array([[0, 2]], dtype=int32)
    """
    with device(device_name):
        moved = _Moved(device_name)
        call, operands, by_name = moved(function), moved(arrays), moved(named)
        try:
            with current(device_name):
                result: T = _back(call(*operands, **by_name))
                return result
        except Exception as error:
            error.args = _back(error.args)
            raise


class _Moved:
    """A mover of arrays to a device, the same one to the same copy."""

    def __init__(self, to: str) -> None:
        self.to, self.copies = to, dict[int, tuple[Any, Any]]()

    def __call__(self, x: Any) -> Any:
        if id(x) not in self.copies:
            self.copies[id(x)] = x, _mapped(x, self, self._copy)  # x is kept, or its id may be another's
        return self.copies[id(x)][1]

    def _copy(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            if self.to == "cpu" or x.dtype.kind not in _NUMBERS:
                return x
            with current(self.to):
                return namespace(self.to).asarray(x)
        moves = isinstance(x, QuantArray) or (hasattr(x, "to_device") and not hasattr(x, "__cuda_array_interface__"))
        return x.to_device(self.to) if moves and not isinstance(x, np.generic | type) else x


def _back(x: Any) -> Any:
    """Move arrays of a result to the CPU."""

    def copy(a: Any) -> Any:
        return asnumpy(a) if isinstance(a, QuantArray) or hasattr(a, "__cuda_array_interface__") else a

    return _mapped(x, _back, copy)


def _mapped(x: Any, each: Callable[[Any], Any], leaf: Callable[[Any], Any]) -> Any:
    """`each` of the members of a tuple, list or dict, of its own kind; `leaf` of what is none."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(each, x))
    if type(x) in (tuple, list):
        return type(x)(map(each, x))
    return {key: each(value) for key, value in x.items()} if type(x) is dict else leaf(x)
