"""The methods of QuantArray that reduce or search; each is the function of its name."""

from __future__ import annotations

from typing import Any, Literal, SupportsIndex, cast, overload

import numpy as np

from ..array import QuantArray
from ..dtypes import Array
from ..hints import Axes, Bytes, OutType
from ..ops import contractions, reduction, searching


class Reductions:
    """Reductions and searches over axes, made of popcounts."""

    __slots__ = ()

    @overload
    def sum(self, axis: None = None, *, dtype: OutType = None, keepdims: Literal[False] = False) -> np.number[Any]: ...
    @overload
    def sum(self, axis: None = None, *, dtype: OutType = None, keepdims: Literal[True]) -> Array: ...
    @overload
    def sum(self, axis: Axes, *, dtype: OutType = None, keepdims: bool = False) -> Array: ...
    def sum(self, axis: Axes | None = None, *, dtype: OutType = None, keepdims: bool = False) -> Array | np.number[Any]:
        """See `quantarray.sum`."""
        return reduction.sum(cast(QuantArray, self), axis, dtype=dtype, keepdims=keepdims)

    @overload
    def mean(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.float32: ...
    @overload
    def mean(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def mean(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def mean(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.float32:
        """See `quantarray.mean`."""
        return reduction.mean(cast(QuantArray, self), axis, keepdims=keepdims)

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
        return reduction.var(cast(QuantArray, self), axis, correction=less, keepdims=keepdims)

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
        return reduction.std(cast(QuantArray, self), axis, correction=less, keepdims=keepdims)

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
        return reduction.prod(cast(QuantArray, self), axis, dtype=dtype, keepdims=keepdims)

    @overload
    def any(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.bool: ...
    @overload
    def any(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def any(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def any(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.bool:
        """See `quantarray.any`."""
        return reduction.any(cast(QuantArray, self), axis, keepdims=keepdims)

    @overload
    def all(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.bool: ...
    @overload
    def all(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def all(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def all(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.bool:
        """See `quantarray.all`."""
        return reduction.all(cast(QuantArray, self), axis, keepdims=keepdims)

    @overload
    def min(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.number[Any]: ...
    @overload
    def min(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def min(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def min(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.number[Any]:
        """See `quantarray.min`."""
        return reduction.min(cast(QuantArray, self), axis, keepdims=keepdims)

    @overload
    def max(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.number[Any]: ...
    @overload
    def max(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def max(self, axis: Axes, *, keepdims: bool = False) -> Array: ...
    def max(self, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.number[Any]:
        """See `quantarray.max`."""
        return reduction.max(cast(QuantArray, self), axis, keepdims=keepdims)

    @overload
    def argmin(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.int64: ...
    @overload
    def argmin(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def argmin(self, axis: SupportsIndex, *, keepdims: bool = False) -> Array: ...
    def argmin(self, axis: SupportsIndex | None = None, *, keepdims: bool = False) -> Array | np.int64:
        """See `quantarray.argmin`."""
        return searching.argmin(cast(QuantArray, self), axis, keepdims=keepdims)

    @overload
    def argmax(self, axis: None = None, *, keepdims: Literal[False] = False) -> np.int64: ...
    @overload
    def argmax(self, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
    @overload
    def argmax(self, axis: SupportsIndex, *, keepdims: bool = False) -> Array: ...
    def argmax(self, axis: SupportsIndex | None = None, *, keepdims: bool = False) -> Array | np.int64:
        """See `quantarray.argmax`."""
        return searching.argmax(cast(QuantArray, self), axis, keepdims=keepdims)

    def argsort(self, *, axis: SupportsIndex = -1, descending: bool = False) -> Array:
        """See `quantarray.argsort`."""
        return searching.argsort(cast(QuantArray, self), axis=axis, descending=descending)

    def nonzero(self) -> tuple[Array, ...]:
        """See `quantarray.nonzero`."""
        return searching.nonzero(cast(QuantArray, self))

    def dot(self, other: QuantArray | Bytes) -> Array:
        """See `quantarray.dot`."""
        return contractions.dot(cast(QuantArray, self), other)

