"""Evenly spaced levels: integers times a step, with or without a zero point."""

from __future__ import annotations

from functools import cache

import numpy as np

from ..backends.registry import empty, kernel, to_host
from ..core.dtypes import Array, Constants, DType, bipolar, integers, uniform
from ..kernels.operands import RangeRule
from .base import Quantizer, bits_of, finite_ends, float32, float_rows, is_number, is_positive, ones_like_reduced
from .grid import Grid, sign_grid
from .least_squares import least_squares_grid, least_squares_scale


class Uniform(Quantizer):
    """Quantise to levels step * i (symmetric) or step * (i - zero) (affine), for 2**bits codes.

    | signed | symmetric | levels                                     | step from the data                      |
    |--------|-----------|--------------------------------------------|-----------------------------------------|
    | True   | True      | -L .. L times step, L = 2**(bits-1) - 1    | max|x| / L; 1 bit: {-1, 1} * max|x|     |
    | False  | True      | 0 .. 2**bits - 1 times step                | max(x, 0) / (2**bits - 1)               |
    | either | False     | step * (code - zero), zero an integer      | (max(x, 0) - min(x, 0)) / (2**bits - 1) |
    | True   | `midrise` | +-1/2, .. +-(2**bits - 1)/2 times step     | max|x| / (2**bits - 1) * 2              |

    `midrise=True` stores odd integers times step/2.

    The affine grid holds 0 exactly (Jacob et al., arXiv 1712.05877): its step is rounded to 16 bits, so that step
    times zero fits into a float32. The signed variant of frameworks moves code and zero point together, so it gives the
    same values. `percentile` below 100 leaves the outermost values out of the range: percentile p of |x| if symmetric,
    100 - p and p of x if affine. `step` (and `offset`, 0 by default, if affine) fix the grid instead. `mse=True` takes
    the step of least squared error that `least_squares_scale` finds, or if affine the step and the offset of
    `least_squares_grid`, whose levels follow the values: 0 need not be one of them.

    x rounds to the nearest level, a tie to the even one (with {-1, 1}, 0 to 1; mid-rise, to the larger one); x beyond
    the range, infinities included, goes to the end. Constants are computed in float64 and stored as float32. All
    zeros decode to themselves, with the step 1, or 0 where no level is 0; so does another constant within one
    rounding, and exactly if affine or with `mse`. For an empty array the step is 1.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-0.7, 0, 0.3, 0.5]), qa.Uniform(4))
    >>> q.dtype, q.codes(), float(q.scale[0])
    (quantarray.integers(range(-7, 8)), array([ 0,  7, 10, 12], dtype=uint8), 0.10000000149011612)
    >>> qa.quantize(np.float32([-3.5, -1.25, 1.25, 4]), qa.Uniform(2, midrise=True, mse=True)).dequantize()
    array([-3.75, -1.25,  1.25,  3.75], dtype=float32)
    """

    nearest = True
    idempotent = True
    monotone = True
    pointwise = True
    anywhere = True

    def __init__(
        self,
        bits: int,
        signed: bool = True,
        symmetric: bool = True,
        percentile: float = 100.0,
        step: float | None = None,
        offset: float | None = None,
        mse: bool = False,
        midrise: bool = False,
    ) -> None:
        self.bits = bits_of("Uniform", bits)
        for name, flag in (("signed", signed), ("symmetric", symmetric), ("mse", mse), ("midrise", midrise)):
            if not isinstance(flag, (bool, np.bool_)):
                raise ValueError(f"Uniform: {name} must be True or False, got {flag!r}")
        if not is_number(percentile) or not 0 < percentile <= 100:
            raise ValueError(f"Uniform: percentile must be in (0, 100], got {percentile!r}")
        if midrise and not (signed and symmetric):
            raise ValueError(f"Uniform: midrise levels are signed and symmetric, got {signed=}, {symmetric=}")
        if mse and not (percentile == 100 and step is None):
            raise ValueError(f"Uniform: mse=True finds the step from all values, got {percentile=}, {step=}")
        if step is not None and not (is_positive(step) and is_positive(float(step) / 2 if midrise else step)):
            raise ValueError(f"Uniform: step must be a positive float32, got {step!r}")
        if offset is not None and (symmetric or step is None or not is_number(offset)):
            raise ValueError(
                f"Uniform: offset must be a float32, and needs symmetric=False and a step, got offset={offset!r}, "
                f"step={step!r}, symmetric={symmetric}"
            )
        self.signed, self.symmetric, self.mse, self.midrise = bool(signed), bool(symmetric), bool(mse), bool(midrise)
        self.percentile = float(percentile)
        self.step = None if step is None else float(step)
        self.offset = None if offset is None else float(offset)

    @property
    def dtype(self) -> DType:
        if not self.symmetric:
            return uniform(self.bits)
        if not self.signed:
            return _integers(0, self._top, 1)
        if self.midrise:
            return _integers(-self._top, self._top, 2)
        return bipolar if self.bits == 1 else _integers(-self._top, self._top, 1)

    @property
    def fixed(self) -> bool:
        return self.step is not None

    @property
    def _top(self) -> int:
        """Return the largest level in scales: steps, or half-steps if mid-rise."""
        if self.symmetric and self.signed and not self.midrise:
            return max(1, (1 << self.bits - 1) - 1)
        return (1 << self.bits) - 1

    @property
    def _without_zero(self) -> bool:
        return self.midrise or self._signs

    @property
    def _signs(self) -> bool:
        """True where the levels are {-1, 1}."""
        return self.bits == 1 and self.signed and self.symmetric

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        name, shape = type(self).__name__, ones_like_reduced(x, axes)
        if self.step is not None:
            scale = np.full(shape, self.step / 2 if self.midrise else self.step, np.float32)
            return Constants(scale, None if self.symmetric else np.full(shape, self.offset or 0.0, np.float32))
        if self.mse and x.size:
            rows = float_rows(x, axes)
            finite_ends(name, rows, (1,))
            return self._least_squares(name, rows, shape)
        if not x.size:
            return Constants(np.ones(shape, np.float32), None if self.symmetric else np.zeros(shape, np.float32))
        return self._of_range(finite_ends(name, x, axes) if self.percentile == 100 else self._inner_range(x, axes))

    def fit_range(self, ends: Array) -> Constants | None:
        return None if self.fixed or self.mse or self.percentile < 100 else self._of_range(ends)

    def _of_range(self, ends: Array) -> Constants:
        """Fit scale and offset to ranges. The scale is 0 only for zeros where no level is 0."""
        out = empty("cpu", ends.shape, np.float64)
        how = self.signed, self.symmetric, not self._without_zero
        kernel("cpu", "range_constants")(ends.reshape(2, -1), self._top, *how, out.reshape(2, -1))
        scale = float32(type(self).__name__, "step", out[0])
        return Constants(scale, None if self.symmetric else float32("Uniform", "offset", out[1]))

    def _least_squares(self, name: str, rows: Array, shape: tuple[int, ...]) -> Constants:
        if not self.symmetric:
            step, offset = (a.reshape(shape) for a in least_squares_grid(rows, 2**self.bits))
            return Constants(float32(name, "step", _safe(step)), float32(name, "offset", offset))
        assert self.dtype.levels is not None
        magnitudes = np.abs(rows) if self.signed else np.maximum(rows, 0)
        step = least_squares_scale(magnitudes, np.unique(np.abs(self.dtype.levels))).reshape(shape)
        return Constants(float32(name, "step", step if self._without_zero else _safe(step)))

    def _inner_range(self, x: Array, axes: tuple[int, ...]) -> Array:
        rows, of_magnitudes = float_rows(x, axes), self.symmetric and self.signed
        rows = np.sort(np.abs(rows) if of_magnitudes else rows, axis=1)
        high = _percentile(rows, self.percentile, least=0.0 if self.symmetric else -np.inf)
        low = -high if self.symmetric else -_percentile(rows, self.percentile, sign=-1)
        return np.stack([low, high]).reshape(2, *ones_like_reduced(x, axes))

    def grid(self, constants: Constants) -> Grid:
        if self._signs:
            return sign_grid(constants)
        scale, offset, top = constants.scale, constants.offset, self._top
        assert scale is not None
        start = np.zeros(scale.shape) if offset is None else offset.astype(np.float64)
        step = scale.astype(np.float64)
        if self.midrise:
            half = 2 ** (self.bits - 1)
            return Grid(start, np.where(scale == 0, 1, 2 * step), 1.0, -half, half - 1, True)
        return Grid(start, step, 1.0, -top if self.symmetric and self.signed else 0, top)

    def encode(self, x: Array, constants: Constants) -> Array:
        return self.grid(constants).codes(x)

    def __repr__(self) -> str:
        extra = "".join(
            f", {name}={getattr(self, name)}"
            for name, usual in (
                ("signed", True),
                ("symmetric", True),
                ("percentile", 100.0),
                ("step", None),
                ("offset", None),
                ("mse", False),
                ("midrise", False),
            )
            if getattr(self, name) != usual
        )
        return f"Uniform({self.bits}{extra})"


def range_rule(quantizer: Uniform) -> RangeRule | None:
    """Return a kernel's operands for `fit_range` and then `grid`; None where constants need more than a range."""
    if quantizer.fixed or quantizer.mse or quantizer.percentile < 100:
        return None
    top, half = quantizer._top, 2 ** (quantizer.bits - 1)
    fit = top, quantizer.signed, quantizer.symmetric, not quantizer._without_zero
    if quantizer._signs:
        return RangeRule(*fit, 0.0, -1, 0, True)
    if quantizer.midrise:
        return RangeRule(*fit, 2.0, -half, half - 1, True)
    return RangeRule(*fit, 1.0, -top if quantizer.symmetric and quantizer.signed else 0, top, False)


@cache
def _integers(first: int, last: int, apart: int) -> DType:
    """Return the dtype of integers first .. last in steps of `apart`, cached: 255 of them take 90 us."""
    return integers(range(first, last + 1, apart))


def _percentile(rows: Array, percentile: float, sign: int = 1, least: float = -np.inf) -> Array:
    """float64 [channels]: NumPy's percentile of sorted rows, or of their negatives; lesser values count as `least`.

    Raises ValueError for ends that are not finite, since nobody has looked at values on a GPU before.
    """
    last = rows.shape[1] - 1

    def value(i: int) -> Array:
        return np.maximum(sign * to_host(rows[:, i if sign > 0 else last - i]).astype(np.float64), least)

    if not np.isfinite([to_host(rows[:, 0]), to_host(rows[:, last])]).all():
        raise ValueError("Uniform: the data must be finite")
    place = last * (percentile / 100)
    whole = int(place)
    low, high, part = value(whole), value(min(whole + 1, last)), place - whole
    with np.errstate(over="ignore", invalid="ignore"):  # a difference beyond float64 is refused as a step
        return np.asarray(high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part)


def _safe(step: Array) -> Array:
    """Replace steps of 0 by 1, and those that rounding would make vanish by the smallest float32."""
    tiny = np.nextafter(np.float32(0), np.float32(1))
    return np.where(step == 0, 1.0, np.maximum(step, tiny))
