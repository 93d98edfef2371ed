"""Choose constants by the error of what is multiplied with them: the importance of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import Array, Constants
from ...quantizers.base import Quantizer

_STARTS = 1.0, 0.85, 0.7, 0.55, 0.4  # times the fitted constants: the error has several minima
_ROUNDS = 3  # of codes and their best factor, from each start: the third changes the error by a thousandth or less


def importance_of(op: str, value: Any, quantizer: Quantizer, length: int, device: str) -> Array:
    """Check weights of errors: finite numbers that are not negative, one for each element of the packed axis."""
    h = checks.numbers(op, "importance", value).astype(np.float64)
    if h.shape != (length,) or not np.isfinite(h).all() or (h < 0).any() or (length and not h.any()):
        raise ValueError(
            f"{op}: importance must be finite numbers [{length}] of the packed axis, none negative and not all 0, such "
            f"as the mean of x**2 over a calibration set"
        )
    if quantizer.fixed or not quantizer.pointwise:
        raise ValueError(
            f"{op}: importance chooses constants, and those of {quantizer} are not fitted element by element"
        )
    if device != "cpu":
        raise ValueError(f"{op}: importance is for arrays on the CPU, got one on {device}; move it with qa.asnumpy(x)")
    return h


def weighted(
    a: Array, h: Array, at: int, group: int | None, fitted: Constants, encode: Callable[[Constants], QuantArray]
) -> Constants:
    """Multiply constants by the factors for which sum(h * (a - values)**2) is least, one factor for each entry.

    All values of an entry are proportional to its constants, whatever the law. From several starts, codes and the best
    factor for them, sum(h * a * v) / sum(h * v**2), are found in turn; the least error that was seen is taken.
    """
    entries = np.broadcast_shapes(*(c.shape[lead:] for _, c, lead in fitted.items()))
    weights = h.reshape(-1, *(1,) * (a.ndim - 1 - at))

    def total(x: Array) -> Array:
        return _sums(x * weights, entries, at, group)

    def error(constants: Constants) -> Array:
        return total((wide - encode(constants).dequantize()) ** 2)

    wide = a.astype(np.float64)
    best, least = fitted, error(fitted)
    for start in _STARTS:
        trial = _times(fitted, np.full(entries, start))
        for _ in range(_ROUNDS):
            values = encode(trial).dequantize().astype(np.float64)
            squares = total(values * values)
            factor = np.divide(total(wide * values), squares, out=np.ones(entries), where=squares > 0)
            trial = _times(trial, np.where(factor > 0, factor, 1))
        left = error(trial)
        best, least = _chosen(left < least, trial, best), np.minimum(left, least)
    return best


def _sums(x: Array, entries: tuple[int, ...], at: int, group: int | None) -> Array:
    """Add what shares constants, float64 of the constants' shape."""
    if entries[at] > 1 and group is not None:
        x = np.add.reduceat(x, np.arange(0, x.shape[at], group), axis=at)
    over = tuple(d for d, n in enumerate(entries) if n == 1)
    total: Array = x.sum(over, keepdims=True)
    return total


def _times(constants: Constants, factor: Array) -> Constants:
    with np.errstate(over="ignore"):
        return constants.map(lambda c, lead: (c.astype(np.float64) * factor).astype(np.float32))


def _chosen(better: Array, trial: Constants, best: Constants) -> Constants:
    """Take an entry's constants from a trial where that is better."""
    before = {name: c for name, c, _ in best.items()}
    taken = {name: np.where(better, c, before[name]) for name, c, _ in trial.items()}
    return Constants(taken.get("scale"), taken.get("offset"), taken.get("table"))
