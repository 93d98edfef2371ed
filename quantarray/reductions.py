"""The methods of QuantArray that reduce or search; each is the function of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .dtypes import Array

if TYPE_CHECKING:
    from .array import QuantArray


class Reductions:
    """What `QuantArray` inherits: reductions and searches over axes, made of popcounts."""

    __slots__ = ()

    def sum(self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
        """See `quantarray.sum`."""
        return _reduction("sum", self, axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """See `quantarray.mean`."""
        return _reduction("mean", self, axis, keepdims=keepdims)

    def var(self, axis: Any = None, *, correction: float | None = None, ddof: float = 0, keepdims: bool = False) -> Any:
        """See `quantarray.var`; `ddof` is the name that NumPy's method has for `correction`."""
        less = ddof if correction is None else correction
        return _reduction("var", self, axis, correction=less, keepdims=keepdims)

    def std(self, axis: Any = None, *, correction: float | None = None, ddof: float = 0, keepdims: bool = False) -> Any:
        """See `quantarray.std`; `ddof` is the name that NumPy's method has for `correction`."""
        less = ddof if correction is None else correction
        return _reduction("std", self, axis, correction=less, keepdims=keepdims)

    def prod(self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
        """See `quantarray.prod`."""
        return _reduction("prod", self, axis, dtype=dtype, keepdims=keepdims)

    def any(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """See `quantarray.any`."""
        return _reduction("any", self, axis, keepdims=keepdims)

    def all(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """See `quantarray.all`."""
        return _reduction("all", self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """See `quantarray.min`."""
        return _reduction("min", self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """See `quantarray.max`."""
        return _reduction("max", self, axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """See `quantarray.argmin`."""
        return _search("argmin", self, axis, keepdims=keepdims)

    def argmax(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """See `quantarray.argmax`."""
        return _search("argmax", self, axis, keepdims=keepdims)

    def argsort(self, *, axis: int = -1, descending: bool = False) -> Array:
        """See `quantarray.argsort`."""
        return cast(Array, _search("argsort", self, axis=axis, descending=descending))

    def nonzero(self) -> tuple[Array, ...]:
        """See `quantarray.nonzero`."""
        return cast("tuple[Array, ...]", _search("nonzero", self))

    def dot(self, other: Any) -> Any:
        """See `quantarray.dot`."""
        from .ops import contractions

        return contractions.dot(cast("QuantArray", self), other)


def _reduction(name: str, *args: Any, **kwargs: Any) -> Any:
    from .ops import reduction

    return getattr(reduction, name)(*args, **kwargs)


def _search(name: str, *args: Any, **kwargs: Any) -> Any:
    from .ops import searching

    return getattr(searching, name)(*args, **kwargs)
