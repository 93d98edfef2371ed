"""Layers that join, cut and reorder channels, of packed arrays and of dense ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..backends.registry import common_device, device_of, namespace
from ..core.dtypes import Array
from ..ops.manipulation.joining import concat
from ..ops.manipulation.rearranging import split
from ..ops.manipulation.shuffling import channel_shuffle
from ..ops.products.residual import add_residual
from .named import named


@dataclass(frozen=True, eq=False)
class Concat:
    """`concat(arrays, axis)` as a layer: takes a list of arrays, all packed or all dense, and joins their channels.

    axis: that of the channels, the last one; 1 for [n c h w].

    >>> import quantarray as qa
    >>> a = qa.encode([[1, -1]], values=(-1, 1))
    >>> qa.nn.Concat()([a, a]).dequantize()
    array([[ 1, -1,  1, -1]], dtype=int32)
    """

    axis: int = -1

    def __post_init__(self) -> None:
        checks.integer("Concat", "axis", self.axis, -(2**31), 2**31)

    @named
    def __call__(self, x: Sequence[QuantArray | Array]) -> QuantArray | Array:
        arrays: Any = list(x) if isinstance(x, (list, tuple)) else x
        dense = isinstance(arrays, list) and len(arrays) and not any(isinstance(a, QuantArray) for a in arrays)
        if not dense:
            return concat(arrays, self.axis)
        arrays = [checks.anywhere("concat", f"arrays[{i}]", a) for i, a in enumerate(arrays)]
        device = common_device("concat", **{f"arrays[{i}]": a for i, a in enumerate(arrays)})
        joined: Array = namespace(device).concatenate(arrays, axis=self.axis)
        return joined

    @property
    def name(self) -> str:
        return "concat"

    @property
    def takes(self) -> str:
        return f"a list of arrays of equal shapes but for axis {self.axis}"

    def __repr__(self) -> str:
        return f"Concat({'' if self.axis == -1 else f'axis={self.axis}'})"


@dataclass(frozen=True, eq=False)
class Add:
    """`add_residual(x, residual, ...)` as a layer: takes a list of the two, packed or dense, and adds them.

    Returns the sum, with `requantize` its packed codes, and with `return_sum` both. axis: that of the channels.

    >>> import quantarray as qa, numpy as np
    >>> a, b = qa.encode([[1, -1]], values=(-1, 1)), np.int32([[3, 0]])
    >>> qa.nn.Add()([b, a]), qa.nn.Add(qa.Thresholds([0]))([b, a]).dequantize()
    (array([[ 4, -1]], dtype=int32), array([[ 1, -1]], dtype=int32))
    """

    requantize: Thresholds | None = None
    return_sum: bool = False
    axis: SupportsIndex = -1

    def __post_init__(self) -> None:
        if self.requantize is not None and not isinstance(self.requantize, Thresholds):
            raise TypeError(f"Add: requantize must be a Thresholds or None, got {checks.kind(self.requantize)}")
        checks.flag("Add", "return_sum", self.return_sum)
        checks.integer("Add", "axis", self.axis, -(2**31), 2**31)

    @named
    def __call__(self, x: Sequence[QuantArray | Array]) -> QuantArray | Array | tuple[Array, QuantArray]:
        if not isinstance(x, (list, tuple)) or len(x) != 2:
            raise TypeError(f"add_residual: needs a list of two arrays, got {checks.kind(x)}")
        add: Any = add_residual
        how = {"requantize": self.requantize, "return_sum": self.return_sum, "axis": self.axis}
        total: QuantArray | Array | tuple[Array, QuantArray] = add(*x, **how)
        return total

    @property
    def name(self) -> str:
        return "add"

    @property
    def takes(self) -> str:
        return "a list of two arrays of one shape"

    def __repr__(self) -> str:
        T = self.requantize
        others = [*([] if T is None else [repr(T)]), *["return_sum"] * self.return_sum]
        others += [] if self.axis == -1 else [f"axis={self.axis}"]
        return f"Add({', '.join(others)})"


@dataclass(frozen=True, eq=False)
class Split:
    """`split(x, indices_or_sections, axis)` as a layer: cuts the channels, of a packed array or a dense one, into a
    list.

    indices_or_sections: a number of parts of one length, or the channels where parts after the first begin. axis: that
    of the channels, the last one; 1 for [n c h w].

    >>> import quantarray as qa
    >>> [part.shape for part in qa.nn.Split([1])(qa.encode([[1, -1, 1]], values=(-1, 1)))]
    [(1, 1), (1, 2)]
    """

    indices_or_sections: int | Sequence[int]
    axis: int = -1

    def __post_init__(self) -> None:
        each = self.indices_or_sections
        several = isinstance(each, (list, tuple))
        for number in each if isinstance(each, (list, tuple)) else [each]:
            checks.integer("Split", "indices_or_sections", number, 0 if several else 1)
        if isinstance(each, list):
            object.__setattr__(self, "indices_or_sections", tuple(each))
        checks.integer("Split", "axis", self.axis, -(2**31), 2**31)

    @named
    def __call__(self, x: QuantArray | Array) -> list[QuantArray] | list[Array]:
        if isinstance(x, QuantArray):
            return split(x, self.indices_or_sections, self.axis)
        dense: Any = checks.anywhere("split", "x", x)
        parts: list[Array] = namespace(device_of(dense)).split(dense, self.indices_or_sections, axis=self.axis)
        return parts

    @property
    def name(self) -> str:
        return "split"

    @property
    def takes(self) -> str:
        return f"an array with channels on axis {self.axis}"

    def __repr__(self) -> str:
        return f"Split({self.indices_or_sections}{'' if self.axis == -1 else f', axis={self.axis}'})"


@dataclass(frozen=True, eq=False)
class ChannelShuffle:
    """`channel_shuffle(x, groups, axis)` as a layer, of packed arrays or dense ones.

    >>> import quantarray as qa
    >>> qa.nn.ChannelShuffle(2)(qa.encode([0, 1, 2, 3], values=range(4))).codes()
    array([0, 2, 1, 3], dtype=uint8)
    """

    groups: SupportsIndex
    axis: SupportsIndex = -1

    def __post_init__(self) -> None:
        checks.integer("ChannelShuffle", "groups", self.groups, 1)
        checks.integer("ChannelShuffle", "axis", self.axis, -(2**31), 2**31)

    @named
    def __call__(self, x: QuantArray | Array) -> QuantArray | Array:
        shuffled: QuantArray | Array = channel_shuffle(x, self.groups, self.axis)
        return shuffled

    @property
    def name(self) -> str:
        return f"channel_shuffle {self.groups}"

    @property
    def takes(self) -> str:
        return f"an array whose axis {self.axis} is a multiple of {self.groups}"

    def __repr__(self) -> str:
        return f"ChannelShuffle({self.groups}{'' if self.axis == -1 else f', axis={self.axis}'})"
