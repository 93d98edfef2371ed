"""Whole arrays compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import QuantArray
from ..device import common_device
from . import checks


def array_equal(a: Any, b: Any) -> bool:
    """True where both arrays have the same shape and the same values, whatever their laws and packed axes.

    >>> import quantarray as qa
    >>> a = qa.encode([1, -1], values=(-1, 1))
    >>> qa.array_equal(a, qa.encode([1, -1], values=(-1, 0, 1))), qa.array_equal(a, a[::1][:1])
    (True, False)
    """
    p, q = checks.packed("array_equal", "a", a), checks.packed("array_equal", "b", b)
    common_device("array_equal", a=p, b=q)
    if p.shape != q.shape:
        return False
    if _same_law(p, q):
        return bool(np.array_equal(p.words, q.words)) or (_repeats(p) and _equal_values(p, q))
    return _equal_values(p, q)


def _same_law(p: QuantArray, q: QuantArray) -> bool:
    if p.axis != q.axis or p.dtype != q.dtype or p.group != q.group:
        return False
    ours, theirs = p.constants.items(), q.constants.items()
    return (
        p.constants.bfloat16 == q.constants.bfloat16
        and len(ours) == len(theirs)
        and all(x[0] == y[0] and np.array_equal(x[1], y[1]) for x, y in zip(ours, theirs, strict=True))
    )


def _repeats(p: QuantArray) -> bool:
    """True where two codes may stand for the same value."""
    return not p.dtype.is_integer or p.scale is not None


def _equal_values(p: QuantArray, q: QuantArray) -> bool:
    return bool(np.array_equal(p.dequantize(), q.dequantize()))
