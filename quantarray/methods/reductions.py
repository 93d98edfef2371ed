"""The methods of QuantArray that reduce or search; each is the function of its name."""

from __future__ import annotations

from typing import Any, Literal, SupportsIndex, cast, overload

import numpy as np

from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.hints import Axes, Bytes, OutType
from ..ops.linear_algebra import contractions
from ..ops.statistical import reductions, searching

# Each method has overloads of its own, which those of the functions do not follow
_reductions: Any = reductions
_searching: Any = searching


class Reductions:
    """A mixin of reductions and searches over axes, made of popcounts."""

    __slots__ = ()

    @overload
    def sum(self, axis: None = None, *, dtype: OutType = None, keepdims: Literal[False] = False) -> np.number[Any]: ...
    @overload
    def sum(self, axis: None = None, *, dtype: OutType = None, keepdims: Literal[True]) -> Array: ...
    @overload
    def sum(self, axis: Axes, *, dtype: OutType = None, keepdims: bool = False) -> Array: ...
    def sum(self, axis: Axes | None = None, *, dtype: OutType = None, keepdims: bool = False) -> Array | np.number[Any]:
        """See `quantarray.sum`."""
        return cast(Array, _reductions.sum(self, axis, dtype=dtype, keepdims=keepdims))

    @overload
    def mean(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.float32: ...
    @overload
    def mean(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def mean(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def mean(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.float32:
        """See `quantarray.mean`."""
        return cast(Array, _reductions.mean(self, axis, keepdims=keepdims))

    @overload
    def var(
        self, axis: None = None, *, correction: float | None = None, ddof: float = 0, keepdims: Literal[False] = False
    ) -> np.float32: ...
    @overload
    def var(
        self, axis: None = None, *, correction: float | None = None, ddof: float = 0, keepdims: Literal[True]
    ) -> Array: ...
    @overload
    def var(self, axis: Axes, *, correction: float | None = None, ddof: float = 0, keepdims: bool = False) -> Array: ...
    def var(
        self, axis: Axes | None = None, *, correction: float | None = None, ddof: float = 0, keepdims: bool = False
    ) -> Array | np.float32:
        """See `quantarray.var`; `ddof` is the name that NumPy's method has for `correction`."""
        less = ddof if correction is None else correction
        return cast(Array, _reductions.var(self, axis, correction=less, keepdims=keepdims))

    @overload
    def std(
        self, axis: None = None, *, correction: float | None = None, ddof: float = 0, keepdims: Literal[False] = False
    ) -> np.float32: ...
    @overload
    def std(
        self, axis: None = None, *, correction: float | None = None, ddof: float = 0, keepdims: Literal[True]
    ) -> Array: ...
    @overload
    def std(self, axis: Axes, *, correction: float | None = None, ddof: float = 0, keepdims: bool = False) -> Array: ...
    def std(
        self, axis: Axes | None = None, *, correction: float | None = None, ddof: float = 0, keepdims: bool = False
    ) -> Array | np.float32:
        """See `quantarray.std`; `ddof` is the name that NumPy's method has for `correction`."""
        less = ddof if correction is None else correction
        return cast(Array, _reductions.std(self, axis, correction=less, keepdims=keepdims))

    @overload
    def prod(self, axis: None = None, *, dtype: OutType = None, keepdims: Literal[False] = False) -> np.number[Any]: ...
    @overload
    def prod(self, axis: None = None, *, dtype: OutType = None, keepdims: Literal[True]) -> Array: ...
    @overload
    def prod(self, axis: Axes, *, dtype: OutType = None, keepdims: bool = False) -> Array: ...
    def prod(
        self, axis: Axes | None = None, *, dtype: OutType = None, keepdims: bool = False
    ) -> Array | np.number[Any]:
        """See `quantarray.prod`."""
        return cast(Array, _reductions.prod(self, axis, dtype=dtype, keepdims=keepdims))

    @overload
    def any(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.bool: ...
    @overload
    def any(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def any(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def any(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.bool:
        """See `quantarray.any`."""
        return cast(Array, _reductions.any(self, axis, keepdims=keepdims))

    @overload
    def all(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.bool: ...
    @overload
    def all(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def all(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def all(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.bool:
        """See `quantarray.all`."""
        return cast(Array, _reductions.all(self, axis, keepdims=keepdims))

    @overload
    def min(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.number[Any]: ...
    @overload
    def min(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def min(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def min(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.number[Any]:
        """See `quantarray.min`."""
        return cast(Array, _reductions.min(self, axis, keepdims=keepdims))

    @overload
    def max(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.number[Any]: ...
    @overload
    def max(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def max(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def max(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.number[Any]:
        """See `quantarray.max`."""
        return cast(Array, _reductions.max(self, axis, keepdims=keepdims))

    @overload
    def argmin(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.int64: ...
    @overload
    def argmin(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def argmin(self, axis: SupportsIndex, *, keepdims: bool = False) -> Array: ...
    def argmin(self, axis: SupportsIndex | None = None, *, keepdims: bool = False) -> Array | np.int64:
        """See `quantarray.argmin`."""
        return cast(Array, _searching.argmin(self, axis, keepdims=keepdims))

    @overload
    def argmax(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.int64: ...
    @overload
    def argmax(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def argmax(self, axis: SupportsIndex, *, keepdims: bool = False) -> Array: ...
    def argmax(self, axis: SupportsIndex | None = None, *, keepdims: bool = False) -> Array | np.int64:
        """See `quantarray.argmax`."""
        return cast(Array, _searching.argmax(self, axis, keepdims=keepdims))

    def argsort(self, *, axis: SupportsIndex = -1, descending: bool = False) -> Array:
        """See `quantarray.argsort`."""
        return cast(Array, _searching.argsort(self, axis=axis, descending=descending))

    def nonzero(self) -> tuple[Array, ...]:
        """See `quantarray.nonzero`."""
        return cast("tuple[Array, ...]", _searching.nonzero(self))

    def dot(self, other: QuantArray | Bytes) -> Array:
        """See `quantarray.dot`."""
        return contractions.dot(cast(QuantArray, self), other)
