"""Evenly spaced levels: integers times a step, with or without a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import Array, Constants, DType, bipolar, integers, uint1, uniform
from ..format import MAX_BITS
from .base import Quantizer, ones_like_reduced


class Uniform(Quantizer):
    """Levels step * i (symmetric) or step * (i - zero) (affine), for 2**bits codes.

    | signed | symmetric | levels                                     | step from the data                      |
    |--------|-----------|--------------------------------------------|-----------------------------------------|
    | True   | True      | -L .. L times step, L = 2**(bits-1) - 1    | max|x| / L; 1 bit: {-1, 1} * max|x|     |
    | False  | True      | 0 .. 2**bits - 1 times step                | max(x, 0) / (2**bits - 1)               |
    | either | False     | step * (code - zero), zero an integer      | (max(x, 0) - min(x, 0)) / (2**bits - 1) |

    The affine grid always holds 0 exactly (Jacob et al., arXiv 1712.05877); what frameworks call signed moves code
    and zero point together, so it gives the same values. `percentile` below 100 leaves the outermost values out of
    the range: percentile p of |x| if symmetric, 100 - p and p of x if affine. `step` (and `offset`, a multiple of
    -step, if affine) fix the grid instead.

    x rounds to the nearest level, a tie to the even one; x beyond the range, infinities included, goes to the end.
    Constants are computed in float64 and stored as float32. All zeros (or nothing at all) have the step 1 and decode
    to themselves; another constant decodes to itself within one rounding, and exactly if affine.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-0.7, 0, 0.3, 0.5]), qa.Uniform(4))
    >>> q.dtype, q.codes(), float(q.scale[0])
    (quantarray.integers(range(-7, 8)), array([ 0,  7, 10, 12], dtype=uint8), 0.10000000149011612)
    """

    def __init__(
        self,
        bits: int,
        signed: bool = True,
        symmetric: bool = True,
        percentile: float = 100.0,
        step: float | None = None,
        offset: float | None = None,
    ) -> None:
        if isinstance(bits, bool) or not isinstance(bits, (int, np.integer)) or not 1 <= bits <= MAX_BITS:
            raise ValueError(f"Uniform: bits must be an integer from 1 to {MAX_BITS}, got {bits!r}")
        if not 0 < percentile <= 100:
            raise ValueError(f"Uniform: percentile must be in (0, 100], got {percentile!r}")
        if step is not None and not (np.isfinite(step) and np.float32(step) > 0):
            raise ValueError(f"Uniform: step must be a positive float32, got {step!r}")
        if offset is not None and (symmetric or step is None or not np.isfinite(offset)):
            raise ValueError(
                f"Uniform: a finite offset goes with step=.. and symmetric=False, got {offset!r}, {step!r}, {symmetric}"
            )
        self.bits, self.signed, self.symmetric = int(bits), bool(signed), bool(symmetric)
        self.percentile, self.step, self.offset = percentile, step, offset

    @property
    def dtype(self) -> DType:
        if not self.symmetric:
            return uniform(self.bits)
        if not self.signed:
            return integers(range(2**self.bits)) if self.bits > 1 else uint1
        return bipolar if self.bits == 1 else integers(range(-self._top, self._top + 1))

    @property
    def fixed(self) -> bool:
        return self.step is not None

    @property
    def _top(self) -> int:
        """The largest level in steps."""
        if self.symmetric and self.signed:
            return max(1, 2 ** (self.bits - 1) - 1)
        return 2**self.bits - 1

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        shape = ones_like_reduced(x, axes)
        if self.step is not None:
            scale = np.full(shape, self.step, np.float32)
            return Constants(scale, None if self.symmetric else np.full(shape, self.offset or 0.0, np.float32))
        low, high = self._range(x, axes, shape)
        if self.symmetric:
            return Constants(_float32(_safe(high / self._top)))
        return self._affine(low, high)

    def _range(self, x: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Array, Array]:
        if not x.size:
            return np.zeros(shape), np.zeros(shape)
        x64 = x.astype(np.float64)
        if self.symmetric:
            high = _upper(np.abs(x64) if self.signed else np.maximum(x64, 0), axes, self.percentile)
            return -high, high
        return -_upper(-x64, axes, self.percentile), _upper(x64, axes, self.percentile)

    def _affine(self, low: Array, high: Array) -> Constants:
        constant = low == high  # its one level is the value itself, and no step is needed to reach it
        start, end = np.minimum(low, 0), np.maximum(high, 0)
        scale = _float32(_safe((end - start) / self._top))
        zero = np.rint(-start / scale)
        offset = _float32(np.where(constant, low, -zero * scale))
        return Constants(np.where(constant, np.float32(1), scale), offset)

    def encode(self, x: Array, constants: Constants) -> Array:
        if self.dtype == bipolar:
            return (x >= 0).astype(np.uint8)
        assert constants.scale is not None
        offset: Any = 0.0 if constants.offset is None else constants.offset.astype(np.float64)
        steps = np.rint((x.astype(np.float64) - offset) / constants.scale)
        lowest = -self._top if self.symmetric and self.signed else 0
        return np.asarray((np.clip(steps, lowest, self._top) - lowest).astype(np.uint8))

    def __repr__(self) -> str:
        extra = "".join(
            f", {name}={getattr(self, name)}"
            for name, usual in (
                ("signed", True),
                ("symmetric", True),
                ("percentile", 100.0),
                ("step", None),
                ("offset", None),
            )
            if getattr(self, name) != usual
        )
        return f"Uniform({self.bits}{extra})"


def _upper(x: Array, axes: tuple[int, ...], percentile: float) -> Array:
    if percentile == 100:
        return np.asarray(x.max(axis=axes, keepdims=True))
    return np.asarray(np.percentile(x, percentile, axis=axes, keepdims=True))


def _safe(step: Array) -> Array:
    """No step is 0: 1 where nothing asks for one, the smallest float32 where rounding would make it vanish."""
    tiny = np.nextafter(np.float32(0), np.float32(1))
    return np.where(step == 0, 1.0, np.maximum(step, tiny))


def _float32(x: Array) -> Array:
    with np.errstate(over="ignore"):
        y = x.astype(np.float32)
    if not np.isfinite(y).all():
        raise ValueError(f"Uniform: the range of the data is beyond float32: {np.abs(x).max()}")
    return y
