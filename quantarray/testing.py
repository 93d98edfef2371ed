"""Assertions for tests of code that uses packed arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import checks
from .arrays.array import QuantArray
from .arrays.blocks import blocks
from .core.dtypes import Array

__all__ = ["assert_allclose", "assert_array_equal"]

_SHOWN = 5


def __dir__() -> list[str]:
    return list(__all__)


def assert_array_equal(actual: Any, desired: Any) -> None:
    """Raise AssertionError unless two arrays, packed or NumPy's, have the same shape and the same values.

    Laws, dtypes and packed axes may differ; NaN equals NaN. Values are unpacked and compared block by block.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.encode([1, -1, 1], values=(-1, 1))
    >>> assert_array_equal(q, np.array([1, -1, 1]))
    >>> assert_array_equal(q, [1, 1, 1])
    Traceback (most recent call last):
    AssertionError: arrays are not equal: 1 of 3 elements differ (33.3%)
      actual: QuantArray (3,) bipolar
      desired: int64 array (3,)
      at (1,): -1, desired 1
    """
    _compare("arrays are not equal", "assert_array_equal", actual, desired, _unequal)


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0.0) -> None:
    """Raise AssertionError unless |actual - desired| <= atol + rtol * |desired| everywhere, as
    np.testing.assert_allclose.

    >>> import quantarray as qa
    >>> q = qa.encode([1, 3], values=range(4)) / 3
    >>> assert_allclose(q, [1 / 3, 1], rtol=1e-6)
    >>> assert_allclose(q, [1, 1], rtol=0.1)
    Traceback (most recent call last):
    AssertionError: arrays are not close, rtol=0.1, atol=0: 1 of 2 elements differ (50%)
      actual: QuantArray (2,) uint2 with a scale
      desired: int64 array (2,)
      at (0,): 0.33333334, desired 1
    """
    what = f"arrays are not close, rtol={rtol:g}, atol={atol:g}"

    def far(x: Array, y: Array) -> Array:
        with np.errstate(invalid="ignore"):  # differences of infinities
            within = np.abs(x.astype(np.float64) - y) <= atol + rtol * np.abs(y.astype(np.float64))
        return _unequal(x, y) & ~np.asarray(within)

    _compare(what, "assert_allclose", actual, desired, far)


def _unequal(x: Array, y: Array) -> Array:
    return np.asarray((x != y) & ~((x != x) & (y != y)))


def _compare(what: str, op: str, actual: Any, desired: Any, differ: Callable[[Array, Array], Array]) -> None:
    a, b = (
        x if isinstance(x, QuantArray) else checks.numbers(op, name, x)
        for name, x in (("actual", actual), ("desired", desired))
    )
    kinds = f"  actual: {_kind(a)}\n  desired: {_kind(b)}"
    if a.shape != b.shape:
        raise AssertionError(f"{what}: shapes {a.shape} and {b.shape} differ\n{kinds}")
    wrong, first = _differences(a, b, differ)
    if wrong:
        places = "\n".join(f"  at {place}: {x!s}, desired {y!s}" for place, x, y in first)
        more = f"\n  and {wrong - len(first)} more" if wrong > len(first) else ""
        share = f"{wrong} of {a.size} elements differ ({100 * wrong / a.size:.3g}%)"
        raise AssertionError(f"{what}: {share}\n{kinds}\n{places}{more}")


def _kind(x: Any) -> str:
    if not isinstance(x, QuantArray):
        return checks.kind(x)
    scaled = " with a scale" if x.dtype.is_integer and x.constants.has_scale else ""
    return f"QuantArray {x.shape} {x.dtype}{scaled}"


def _differences(
    a: Any, b: Any, differ: Callable[[Array, Array], Array]
) -> tuple[int, list[tuple[tuple[int, ...], Any, Any]]]:
    """Return how many elements differ, and place and values of the first few."""
    wrong = 0
    first: list[tuple[tuple[int, ...], Any, Any]] = []
    for key in blocks(a.shape, arrays=[x for x in (a, b) if isinstance(x, QuantArray)]):
        x, y = _values(a[key]), _values(b[key])
        differing = differ(x, y)
        wrong += int(differing.sum())
        for at in np.argwhere(differing)[: _SHOWN - len(first)]:
            here = tuple(int(i) for i in at)
            first.append((tuple(i + s.start for i, s in zip(here, key, strict=True)), x[here], y[here]))
    return wrong, first


def _values(x: Any) -> Array:
    return x.dequantize() if isinstance(x, QuantArray) else np.asarray(x)
