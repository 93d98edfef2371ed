"""Lengths of the batch as Python code reads them: integers that note the comparisons whose outcome depends on it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_BATCHES = (*range(1, 257), *(1 << k for k in range(9, 21)))  # for which the outcome of a comparison is tried
_ARITHMETIC = "add sub mul floordiv mod and".split()
_STEPPED = ("floordiv", "mod", "and")  # as equal for some batches as a number: what a loop makes of them is not seen
_PLAIN = (  # operations whose results are plain numbers, of which nothing is known for other batches
    "truediv rtruediv pow rpow divmod rdivmod lshift rlshift rshift rrshift or ror xor rxor rand neg pos abs invert "
    "float round trunc floor ceil index repr format hash"
).split()
_COMPARED = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "ge": ">=", "gt": ">"}
_OF_ALL = ("numel", "nelement", "nbytes")
_READ = ("size", "shape", *_OF_ALL)


class Length(int):
    """An integer that is `of(n)` for a batch of n samples; `note` takes what depends on n."""

    batch: int
    of: Callable[[int], int]
    note: Callable[[str], None]
    count: Callable[[], None]

    @classmethod
    def at(cls, batch: int, of: Callable[[int], int], other: Any) -> Length:
        """Return the length of a batch, which notes what `other` notes."""
        length = cls(of(batch))
        length.batch, length.of, length.note, length.count = batch, of, other.note, other.count
        return length

    def __int__(self) -> int:
        """Return a plain integer, whose comparisons nothing notes."""
        self.count()
        return int.__add__(self, 0)

    def __bool__(self) -> bool:
        """Return True unless it is 0."""
        return bool(self != 0)

    @property
    def proportional(self) -> bool:
        """Tell if the length is the batch times a number."""
        return all(self.of(n) == n * self.of(1) for n in range(2, 18))


def _value(x: Any, batch: int) -> Any:
    return x.of(batch) if isinstance(x, Length) else x


def _arithmetic(name: str, reflected: bool) -> Any:
    function = getattr(operator, f"__{name}__")

    def compute(self: Length, other: Any) -> Any:
        divides = name in ("floordiv", "mod") and (reflected or isinstance(other, Length))
        plain = divides or not isinstance(other, int)
        if plain or name in _STEPPED:
            self.count()
        if plain:
            return getattr(int, f"__{'r' * reflected}{name}__")(self, other)
        if reflected:
            return Length.at(self.batch, lambda n: function(other, self.of(n)), self)
        return Length.at(self.batch, lambda n: function(self.of(n), _value(other, n)), self)

    return compute


def _comparison(name: str) -> Any:
    function = getattr(operator, f"__{name}__")

    def compare(self: Length, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            self.count()
            return getattr(int, f"__{name}__")(self, other)
        outcome = function(self.of(self.batch), _value(other, self.batch))
        near = range(max(1, int(other) - 1), int(other) + 2) if abs(other) < 1 << 62 else ()
        for n in (*_BATCHES, *near):
            if function(self.of(n), _value(other, n)) != outcome:
                self.note(f"its Python code asks if the length of the batch is {_COMPARED[name]} {other}")
                break
        return outcome

    return compare


def _plain(name: str) -> Any:
    function = getattr(int, name)

    def compute(self: Length, *others: Any) -> Any:
        self.count()
        return function(self, *others)

    return compute


for _name in (*[f"__{name}__" for name in _PLAIN], "bit_length", "bit_count", "to_bytes"):
    setattr(Length, _name, _plain(_name))
for _name in _ARITHMETIC:
    setattr(Length, f"__{_name}__", _arithmetic(_name, False))
    setattr(Length, f"__r{_name}__", _arithmetic(_name, True))
for _name in _COMPARED:
    setattr(Length, f"__{_name}__", _comparison(_name))


class Lengths(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Give the Python code of a module the lengths of its batch as `Length`s.

    depends: tells if a tensor depends on the inputs, whose first axis is then taken for the batch. counted: whether the
    code takes a length as a plain number.
    """

    def __init__(self, batch: int, depends: Callable[[Any], bool], note: Callable[[str], None]) -> None:
        super().__init__()
        self.note, self.batch, self.counted, self._depends = note, batch, False, depends

    def count(self) -> None:
        """Note that a length is taken as a plain number."""
        self.counted = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function; let a length that it returns depend on the batch."""
        for value in (*args, *(kwargs or {}).values()):
            for n in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(n, Length) and not n.proportional:
                    self.note(f"its Python code calls {getattr(func, '__name__', func)} with a length of {int(n)}")
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        name = getattr(getattr(func, "__self__", None), "__name__", "") if name == "__get__" else name
        if name not in (*_READ, "__len__") or not isinstance(args[0], torch.Tensor) or not self._depends(args[0]):
            return result
        if name == "__len__":
            self.count()
        if isinstance(result, int):
            first_axis = name in _OF_ALL or args[0].ndim + self._axis(args, kwargs) in (0, args[0].ndim)
            return self._length(result) if first_axis else result
        return torch.Size([self._length(result[0]), *result[1:]]) if len(result) else result

    def _axis(self, args: Any, kwargs: Any) -> int:
        return int((*args[1:], *(kwargs or {}).values(), 0)[0])

    def _length(self, n: int) -> Any:
        each = n // self.batch
        return Length.at(self.batch, lambda m: each * m, self) if n == each * self.batch else n
