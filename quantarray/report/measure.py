"""Numbers of a comparison, each a plain formula on x and on what a scheme makes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.format import MAX_BITS
from ..quantizers import (
    ABC,
    LQ,
    PACT,
    XNOR,
    DoReFa,
    Greedy,
    Grouped,
    LloydMax,
    NormalFloat,
    PowerOfTwo,
    Quantizer,
    Ternary,
    Uniform,
)


class Row(NamedTuple):
    """A row of one scheme on one array; see `compare` for each number. A refusal has its reason, and no numbers."""

    scheme: str
    bits: float | None = None
    padding: float | None = None
    constants: float | None = None
    error: float | None = None
    angle: float | None = None
    nbytes: int | None = None
    smaller: float | None = None
    used: int | None = None
    levels: int | None = None
    entropy: float | None = None
    ms: float | None = None
    refused: str | None = None


def published(bits: int) -> list[Quantizer]:
    """Return the schemes that have this number of bits and need nothing but data, those for weights first.

    >>> [str(q) for q in published(2)][:4]
    ['Ternary()', 'DoReFa(2)', 'ABC(2)', 'Greedy(2)']
    """
    schemes: list[Quantizer] = [XNOR()] if bits == 1 else [Ternary()] if bits == 2 else []
    schemes += [DoReFa(bits), ABC(bits), Greedy(bits), Greedy(bits, refit=True), LQ(bits, starts=3)]
    schemes += [Uniform(bits), Uniform(bits, mse=True), Uniform(bits, midrise=True, mse=True)]
    schemes += [PowerOfTwo(bits), NormalFloat(bits)] if bits > 1 else []
    schemes += [LloydMax(bits), Uniform(bits, symmetric=False), Uniform(bits, symmetric=False, mse=True), Grouped(bits)]
    schemes += [LQ(bits, starts=3, center=True)]
    activations = DoReFa(bits, activations=True), LQ(bits, activations=True, starts=3)
    return [*schemes, PACT(bits), *activations, Uniform(bits, signed=False, mse=True)]


def measured(x: Array, quantizer: Quantizer, pack: Callable[[Quantizer], QuantArray]) -> tuple[Row, QuantArray | None]:
    """Return the row of one scheme, and the array that it gives; None and a reason where it refuses x."""
    try:
        seconds = math.inf
        for _ in range(3):  # the first calls may compile kernels
            began = time.perf_counter()
            q = pack(quantizer)
            seconds = min(seconds, time.perf_counter() - began)
    except ValueError as refusal:
        return Row(repr(quantizer), refused=str(refusal)), None
    decoded = q.dequantize()
    counts = np.bincount(q.codes().reshape(-1), minlength=q.dtype.n_levels)
    row = Row(
        scheme=repr(quantizer),
        bits=8 * q.nbytes / q.size,
        padding=8 * q.words.nbytes / q.size - q.bits,
        constants=8 * q.constants.nbytes / q.size,
        error=relative_error(x, decoded),
        angle=angle(x, decoded),
        nbytes=q.nbytes,
        smaller=4 * q.size / q.nbytes,
        used=int((counts > 0).sum()),
        levels=q.dtype.n_levels,
        entropy=entropy(counts),
        ms=1e3 * seconds,
    )
    return row, q


def relative_error(x: Array, decoded: Array) -> float:
    """Return sum (x - decoded)**2 / sum x**2 in float64; where x is all zeros, 0 if the other is, else infinity.

    >>> relative_error(np.array([3, 4]), np.array([3, 3]))
    0.04
    """
    scale = float(np.abs(x.astype(np.float64)).max()) or 1.0  # squares stay within float64
    a, b = x.astype(np.float64) / scale, decoded.astype(np.float64) / scale
    with np.errstate(over="ignore"):  # a decoded value may be 1e300 times the largest of x
        error, power = float(((a - b) ** 2).sum()), float((a**2).sum())
    return error / power if power else math.inf if error else 0.0


def angle(x: Array, decoded: Array) -> float:
    """arccos(x . decoded / (|x| |decoded|)) in degrees; 0 where both are zeros, 90 where one is.

    Taken from the sum and the difference of the unit vectors, because near 0 the arc cosine has lost half its digits.

    >>> round(angle(np.array([1, 0]), np.array([3, 3])), 9), angle(np.array([1]), np.array([2]))
    (45.0, 0.0)
    """
    units = []
    for a in (x.astype(np.float64).reshape(-1), decoded.astype(np.float64).reshape(-1)):
        a = a / (np.abs(a).max() or 1.0)
        units.append(a / (np.linalg.norm(a) or 1.0))
    u, v = units
    if not u.any() and not v.any():
        return 0.0
    return math.degrees(2 * math.atan2(float(np.linalg.norm(u - v)), float(np.linalg.norm(u + v))))


def entropy(counts: Array) -> float:
    """Return -sum p log2 p of how often each code occurs, in bits.

    >>> entropy(np.array([2, 1, 1, 0]))
    1.5
    """
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log2(p)).sum()) + 0.0


def finite_or_none(row: Row) -> dict[str, Any]:
    """Return the row's fields for JSON, which has no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row._asdict().items()}


def quantizers_of(schemes: Iterable[Any] | None, bits: int | None) -> list[Quantizer]:
    """Return the quantisers that `compare` was asked for, or TypeError."""
    if (schemes is None) == (bits is None):
        came = "neither" if schemes is None else "both"
        raise TypeError(f"compare: needs a list of quantisers, or bits= for all published schemes, got {came}")
    if schemes is None:
        return published(checks.integer("compare", "bits", bits, 1, MAX_BITS))
    if not isinstance(schemes, Iterable):
        raise TypeError(f"compare: quantizers must be a list such as [Sign(), Uniform(4)], got {schemes!r}")
    listed = list(schemes)
    for q in listed:
        if not isinstance(q, Quantizer):
            named = f"the class {q.__name__}: call it" if isinstance(q, type) else repr(q)
            raise TypeError(f"compare: quantizers must be quantisers such as Sign() or Uniform(4), got {named}")
    if not listed:
        raise ValueError("compare: needs at least one quantiser")
    return listed
