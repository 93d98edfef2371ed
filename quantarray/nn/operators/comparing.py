"""Comparisons, operators on bools, and the choice between two values that a bool makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtypes import Array
from .record import Attributes, Operator, always, array


def _of(f: Callable[..., Array]) -> Operator:
    """Return the record of an operator whose result is bools."""
    return Operator(run=lambda a, x, y: array(f(x, y)), dtype=always("bool"))


def _where(a: Attributes, condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition, x, y)


def _bucketize(a: Attributes, x: Array, limits: Array) -> Array:
    """Count the limits, which rise, that are below x, or at most x with `right`; all of them for a NaN."""
    return array(np.searchsorted(limits, x, "right" if a.get("right") else "left"))


def _of_values(a: Attributes, dtypes: list[Any]) -> Any:
    return np.result_type(*dtypes[1:])


OPERATORS = {
    "Greater": _of(np.greater),
    "GreaterOrEqual": _of(np.greater_equal),
    "Less": _of(np.less),
    "LessOrEqual": _of(np.less_equal),
    "Equal": _of(np.equal),
    "And": _of(np.logical_and),
    "Or": _of(np.logical_or),
    "Xor": _of(np.logical_xor),
    "Not": Operator(run=lambda a, x: np.logical_not(x), dtype=always("bool")),
    "Where": Operator(run=_where, dtype=_of_values),
    "bucketize": Operator(run=_bucketize, shape=lambda a, shapes, constants: shapes[:1], dtype=always("int64")),
}
