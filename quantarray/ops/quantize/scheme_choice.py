"""Choose the quantiser that suits an array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import checks
from ...backends.registry import device_of, to_host
from ...core.code_values import level_values
from ...core.dtypes import Array
from ...core.format import MAX_BITS
from ...quantizers import LQ, XNOR, Quantizer, Uniform
from ...quantizers.extremes import extremes

SAMPLE = 1 << 14  # values; decides within a hundredth what a decibel is asked of
DECIBEL = 10**0.1
MOST_LQ_BITS = 4  # beyond, a fit takes longer than all else here, for less than a thousandth of the values' power


def choose(x: Any, bits: int) -> Quantizer:
    """Return the simplest quantiser within a decibel of the best for x: `quantize(x, bits=bits)` takes it.

    Integers (and bools) that have a code each are kept as they are: `Uniform` with the step 1, the first of
        0 .. 2**bits - 1,    -L .. L with L = 2**(bits-1) - 1,    min(x) .. min(x) + 2**bits - 1
    that holds them all. Otherwise the candidates are, the simplest arithmetic first,

    | no value below 0                         | some values below 0                                     |
    |------------------------------------------|---------------------------------------------------------|
    | Uniform(bits, signed=False, mse=True)    | Uniform(bits, midrise=True, mse=True), or XNOR() at 1 bit |
    | Uniform(bits, symmetric=False, mse=True) | Uniform(bits, mse=True), from 2 bits on: 0 is a level   |
    |                                          | Uniform(bits, symmetric=False, mse=True)                |
    |                                          | LQ(bits, starts=3), 2 to 4 bits                         |

    and the first one is taken that has sum (x - q)**2 <= 10**0.1 * the least among them: one decibel. All are uniform
    or basis laws, so products with the result take and-popcounts alone; no table is ever chosen, though `LloydMax` may
    have less error. docs/decisions/0005-choosing-a-scheme.md has the measurements.

    x: numbers of any shape, finite. Signs of all values count, errors are those of a sample: all values up to 2**14, of
    more every s-th in C order, s the least stride of at most 2**14 values that shares no factor with x.size, so that it
    runs through every axis. The same x gives the same answer. For an empty x it is the first candidate on the left.

    Raises TypeError or ValueError for arrays that `quantize` would refuse, NaN and infinities, and for bits beyond
    1 .. 8.

    >>> import quantarray as qa, numpy as np
    >>> x = np.random.default_rng(0).normal(size=1000)
    >>> qa.choose(x, 1), qa.choose(x, 2), qa.choose(np.maximum(x, 0), 2)
    (XNOR(), Uniform(2, mse=True, midrise=True), Uniform(2, signed=False, mse=True))
    >>> qa.choose(x + 5, 2), qa.choose(np.array([0, 3, 1]), 2)
    (Uniform(2, symmetric=False, mse=True), Uniform(2, signed=False, step=1.0))
    """
    return chosen("choose", "x", checks.real_array("choose", "x", x), bits)


def chosen(op: str, name: str, x: Array, bits: Any) -> Quantizer:
    """Choose for an array that is checked; errors name the operation `op`."""
    bits = checks.integer(op, "bits", bits, 1, MAX_BITS)
    if not x.size:
        return Uniform(bits, signed=False, mse=True)
    low, high = extremes(x, tuple(range(x.ndim))).ravel().tolist() if device_of(x) != "cpu" else (x.min(), x.max())
    if not (np.isfinite(low) and np.isfinite(high)):  # asked of two numbers: x may be larger than memory
        checks.finite(op, name, to_host(x))
    if x.dtype.kind in "biu" and (exact := _exact(int(low), int(high), bits)) is not None:
        return exact
    values = _sample(x)
    candidates = _candidates(bits, negative=bool(low < 0))
    errors = [squared_error(values, q) for q in candidates]
    rounding = 2.0**-48 * float((values**2).sum())  # what float32 constants and levels may add to no error at all
    most = DECIBEL * (min(errors) + rounding)
    return next(q for q, error in zip(candidates, errors, strict=True) if error <= most)


def _exact(low: int, high: int, bits: int) -> Quantizer | None:
    """Return a quantiser that keeps all integers from `low` to `high`, None if there are too few codes."""
    top = 2 ** (bits - 1) - 1
    if 0 <= low and high < 2**bits:
        return Uniform(bits, signed=False, step=1.0)
    if bits > 1 and max(-low, high) <= top:
        return Uniform(bits, step=1.0)
    if high - low < 2**bits and max(abs(low), abs(high)) <= 2**24:  # beyond, float32 has not all integers
        return Uniform(bits, symmetric=False, step=1.0, offset=float(low))
    return None


def _candidates(bits: int, negative: bool) -> list[Quantizer]:
    affine = Uniform(bits, symmetric=False, mse=True)
    if not negative:
        return [Uniform(bits, signed=False, mse=True), affine]
    if bits == 1:
        return [XNOR(), affine]
    grids: list[Quantizer] = [Uniform(bits, midrise=True, mse=True), Uniform(bits, mse=True), affine]
    return [*grids, LQ(bits, starts=3)] if bits <= MOST_LQ_BITS else grids


def _sample(x: Array) -> Array:
    """Return at most SAMPLE values of x in float64, evenly spaced in C order."""
    stride = -(-x.size // SAMPLE)
    while math.gcd(stride, x.size) > 1:  # a stride of 64 would see one of 64 channels only
        stride += 1
    return to_host(x.reshape(-1)[::stride]).astype(np.float64)


def squared_error(x: Array, quantizer: Quantizer) -> float:
    """sum (x - decoded)**2 of values [n] with constants of their own."""
    constants = quantizer.fit(x, (0,))
    levels = level_values(quantizer.dtype, constants).reshape(-1).astype(np.float64)
    return float(((x - levels[quantizer.encode(x, constants)]) ** 2).sum())
