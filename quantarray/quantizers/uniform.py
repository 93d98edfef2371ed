"""Evenly spaced levels: integers times a step, with or without a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import Array, Constants, DType, bipolar, integers, uint1, uniform
from .base import Quantizer, bits_of, by_channel, float32, is_number, is_positive, ones_like_reduced
from .least_squares import least_squares_grid, least_squares_scale


class Uniform(Quantizer):
    """Levels step * i (symmetric) or step * (i - zero) (affine), for 2**bits codes.

    | signed | symmetric | levels                                     | step from the data                      |
    |--------|-----------|--------------------------------------------|-----------------------------------------|
    | True   | True      | -L .. L times step, L = 2**(bits-1) - 1    | max|x| / L; 1 bit: {-1, 1} * max|x|     |
    | False  | True      | 0 .. 2**bits - 1 times step                | max(x, 0) / (2**bits - 1)               |
    | either | False     | step * (code - zero), zero an integer      | (max(x, 0) - min(x, 0)) / (2**bits - 1) |
    | `midrise=True`     | +-1/2, +-3/2, .. +-(2**bits - 1)/2 times   | max|x| / (2**bits - 1) * 2              |
    |                    | step, stored as odd integers times step/2  |                                         |

    The affine grid holds 0 exactly (Jacob et al., arXiv 1712.05877): its step is rounded to 16 bits, so that step
    times zero fits into a float32. What frameworks call signed moves code and zero point together, so it gives the
    same values. `percentile` below 100 leaves the outermost values out of the range: percentile p of |x| if
    symmetric, 100 - p and p of x if affine. `step` (and `offset`, 0 by default, if affine) fix the grid instead.
    `mse=True` takes the step of least squared error that `least_squares_scale` finds, or if affine the step and the
    offset of `least_squares_grid`, whose levels lie where the values are: 0 need not be one of them.

    x rounds to the nearest level, a tie to the even one (with {-1, 1}, 0 to 1; mid-rise, to the larger one); x beyond
    the range, infinities included, goes to the end. Constants are computed in float64 and stored as float32. All
    zeros decode to themselves, with the step 1, or 0 where no level is 0; so does another constant within one
    rounding, and exactly if affine or with `mse`. Of nothing at all the step is 1.

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
            return integers(range(2**self.bits)) if self.bits > 1 else uint1
        if self.midrise:
            return integers(range(-self._top, self._top + 1, 2))
        return bipolar if self.bits == 1 else integers(range(-self._top, self._top + 1))

    @property
    def fixed(self) -> bool:
        return self.step is not None

    @property
    def _top(self) -> int:
        """The largest level in scales: steps, or half-steps if mid-rise."""
        if self.symmetric and self.signed and not self.midrise:
            return max(1, (1 << self.bits - 1) - 1)
        return (1 << self.bits) - 1

    @property
    def _without_zero(self) -> bool:
        return self.midrise or self.dtype == bipolar

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        name, shape = type(self).__name__, ones_like_reduced(x, axes)
        if self.step is not None:
            scale = np.full(shape, self.step / 2 if self.midrise else self.step, np.float32)
            return Constants(scale, None if self.symmetric else np.full(shape, self.offset or 0.0, np.float32))
        if self.mse and x.size and not self.symmetric:
            step, offset = least_squares_grid(by_channel(x.astype(np.float64), axes), 2**self.bits)
            return Constants(
                float32(name, "step", _safe(step.reshape(shape))), float32(name, "offset", offset.reshape(shape))
            )
        if self.mse and x.size:
            assert self.dtype.levels is not None
            rows = self._magnitudes(by_channel(x.astype(np.float64), axes))
            found = least_squares_scale(rows, np.unique(np.abs(self.dtype.levels))).reshape(shape)
        else:
            low, high = self._range(x, axes, shape)
            if not self.symmetric:
                return self._affine(low, high)
            found = high / self._top
        # Where no level is 0, zeros need a scale of 0; no other grid has one
        return Constants(float32(name, "step", found if self._without_zero and x.size else _safe(found)))

    def _magnitudes(self, x64: Array) -> Array:
        return np.abs(x64) if self.signed else np.maximum(x64, 0)

    def _range(self, x: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Array, Array]:
        if not x.size:
            return np.zeros(shape), np.zeros(shape)
        x64 = x.astype(np.float64)
        if self.symmetric:
            high = _upper(self._magnitudes(x64), axes, self.percentile)
            return -high, high
        return -_upper(-x64, axes, self.percentile), _upper(x64, axes, self.percentile)

    def _affine(self, low: Array, high: Array) -> Constants:
        constant = low == high  # its one level is the value itself, and no step is needed to reach it
        start, end = np.minimum(low, 0), np.maximum(high, 0)
        with np.errstate(over="ignore"):
            step = np.where(constant, 1.0, _sixteen_bits((end - start) / self._top))
        scale = float32("Uniform", "step", _safe(step))
        zero = np.rint(-start / scale)
        return Constants(scale, float32("Uniform", "offset", np.where(constant, low, -zero * scale)))

    def encode(self, x: Array, constants: Constants) -> Array:
        if self.dtype == bipolar:
            return (x >= 0).astype(np.uint8)
        assert constants.scale is not None
        if self.midrise:
            step = 2 * constants.scale.astype(np.float64)
            with np.errstate(over="ignore"):
                steps = np.floor(x.astype(np.float64) / np.where(step == 0, 1, step))
            half = 2 ** (self.bits - 1)
            return np.asarray((np.clip(steps, -half, half - 1) + half).astype(np.uint8))
        offset: Any = 0.0 if constants.offset is None else constants.offset.astype(np.float64)
        with np.errstate(over="ignore"):
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
                ("mse", False),
                ("midrise", False),
            )
            if getattr(self, name) != usual
        )
        return f"Uniform({self.bits}{extra})"


def _upper(x: Array, axes: tuple[int, ...], percentile: float) -> Array:
    if percentile == 100:
        return np.asarray(x.max(axis=axes, keepdims=True))
    with np.errstate(over="ignore", invalid="ignore"):  # a difference beyond float64 is refused as a step
        return np.asarray(np.percentile(x, percentile, axis=axes, keepdims=True))


def _safe(step: Array) -> Array:
    """No step is 0: 1 where nothing asks for one, the smallest float32 where rounding would make it vanish."""
    tiny = np.nextafter(np.float32(0), np.float32(1))
    return np.where(step == 0, 1.0, np.maximum(step, tiny))


def _sixteen_bits(step: Array) -> Array:
    """A step rounded to 16 significant bits: 255 times it, or less, is exact in the 24 bits of a float32."""
    mantissa, exponent = np.frexp(step)
    return np.asarray(np.ldexp(np.rint(mantissa * 2**16), exponent - 16))
