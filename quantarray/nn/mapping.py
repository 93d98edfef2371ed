"""Layers that act element by element: thresholds, and functions of levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array, DType
from ..core.format import locked
from ..ops.elementwise.mapping import map as map_levels
from .named import named
from .pooling import check_thresholds


@dataclass(frozen=True, eq=False)
class Threshold:
    """`thresholds(x, axis)` as a layer: the codes of a dense result, such as a residual sum, whose channels are `axis`.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.Threshold(qa.Thresholds([0, 5]))(np.array([[-3], [3], [9]])).codes().ravel()
    array([0, 1, 2], dtype=uint8)
    """

    thresholds: Thresholds
    axis: int = -1

    def __post_init__(self) -> None:
        check_thresholds("Threshold", "thresholds", self.thresholds)
        checks.integer("Threshold", "axis", self.axis, -(2**31), 2**31)

    @named
    def __call__(self, x: Any) -> QuantArray:
        return self.thresholds(x, self.axis)

    @property
    def name(self) -> str:
        into = self.thresholds.into
        return f"threshold -> {into.bits}-bit {into}"

    @property
    def takes(self) -> str:
        channels = self.thresholds.channels
        return f"a dense result of {'any number of' if channels is None else channels} channels on axis {self.axis}"

    def __repr__(self) -> str:
        return f"Threshold({self.thresholds!r}{'' if self.axis == -1 else f', axis={self.axis}'})"


@dataclass(frozen=True, eq=False)
class Map:
    """`map(f, x)` as a layer: f of every element of a packed array, evaluated once a level.

    of: the integer dtype of the layer's inputs. With it f is evaluated when the layer is made, and no more: such a
    layer can be saved, as its values; other inputs are refused.

    >>> import quantarray as qa
    >>> square = qa.nn.Map(lambda v: v * v, of=qa.ternary)
    >>> square(qa.encode([-1, 0, 1], values=(-1, 0, 1))).dequantize(), square.values
    (array([1, 0, 1], dtype=int32), array([1, 0, 1]))
    """

    f: Callable[[Array], Any]
    of: DType | None = None
    values: Array | None = field(default=None, init=False, repr=False)  # of each level of `of`

    def __post_init__(self) -> None:
        checks.function("Map", "f", self.f)
        if self.of is None:
            return
        if not isinstance(self.of, DType) or self.of.levels is None:
            raise TypeError(f"Map: of must be an integer dtype, such as quantarray.uint2, got {self.of!r}")
        values = checks.numbers("Map", "the result of f", self.f(np.array(self.of.levels, np.int64)))
        if values.shape != (self.of.n_levels,):
            raise ValueError(f"Map: f must give one number for each of {self.of.n_levels} levels, got {values.shape}")
        checks.finite("Map", "the result of f", values)
        object.__setattr__(self, "values", locked(values.copy()))

    @named
    def __call__(self, x: QuantArray) -> QuantArray:
        q = checks.packed("Map", "x", x)
        if self.of is None:
            return map_levels(self.f, q)
        if q.dtype != self.of or q.constants.shapes:
            scaled = " with constants" if q.constants.shapes else ""
            raise ValueError(f"Map: x must be {self.of}, got {q.dtype}{scaled}; without of= a Map takes any dtype")
        return map_levels(lambda levels: self.values.reshape(levels.shape), q)  # type: ignore[union-attr]

    @property
    def name(self) -> str:
        return f"map {getattr(self.f, '__name__', type(self.f).__name__)}"

    @property
    def takes(self) -> str:
        return f"a packed array{'' if self.of is None else f' of {self.of}'}"

    def __repr__(self) -> str:
        return f"Map({self.name.removeprefix('map ')}{'' if self.of is None else f', of={self.of}'})"
