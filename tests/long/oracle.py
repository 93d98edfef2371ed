"""Exact sums of products of integers of 32 bits: in float64 halves, put together in Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_HALF = 16


def halves(values: Array) -> tuple[Array, Array]:
    """(high, low) float64 with values = high * 2**16 + low, |high| <= 2**15 and 0 <= low < 2**16.

    >>> [h.tolist() for h in halves(np.array([-1, 65537]))]
    [[-1.0, 1.0], [65535.0, 1.0]]
    """
    high = values >> _HALF
    return high.astype(np.float64), (values - (high << _HALF)).astype(np.float64)


def exactly(product: Callable[[Array, Array], Array], x: Array, w: Array, elements: int) -> Array:
    """product(x, w), a sum of at most `elements` products, as an array of Python's integers.

    float64 sums of halves are below 2**32 * elements, exact up to 2**20 elements.
    """
    largest = int(np.abs(x).max(initial=0)) * int(np.abs(w).max(initial=0)) * elements
    if largest < 2**53:
        return _whole(product(x.astype(np.float64), w.astype(np.float64)))
    assert elements <= 2**20
    (xh, xl), (wh, wl) = halves(x), halves(w)
    low, high = _whole(product(xl, wl)), _whole(product(xh, wh))
    middle = _whole(product(xh, wl)) + _whole(product(xl, wh))
    return np.asarray(low + middle * 2**_HALF + high * 2 ** (2 * _HALF), object)


def _whole(sums: Array) -> Array:
    return sums.astype(np.int64).astype(object)
