"""Random laws and codes whose sums are near a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import quantarray as qa
from quantarray.core.format import bits_for

MOST = 2**31 - 1  # magnitude of an integer level


@dataclass
class Operand:
    """A packed array and its values: int64 levels times a float64 scale, or float64 values."""

    packed: qa.QuantArray
    values: np.ndarray[Any, Any]  # int64 or float64, the array's shape
    scale: np.ndarray[Any, Any] | None = None  # float64, broadcasts to the values; None for 1

    @property
    def exact(self) -> bool:
        return self.values.dtype == np.int64

    @property
    def real(self) -> np.ndarray[Any, Any]:
        values = self.values.astype(np.float64)
        return values if self.scale is None else values * self.scale


def magnitude(rng: np.random.Generator, low: float, high: float) -> int:
    """Draw an integer from low to high, uniform in its logarithm."""
    low, high = sorted(np.log2(np.clip([low, high], 1, MOST)))
    return min(MOST, int(2 ** rng.uniform(low, high)))


def integer_law(rng: np.random.Generator, most: int) -> qa.DType:
    """1 to 256 different integers of at most `most`, one of which is near it: even or not, of either sign."""
    n = int(rng.choice([1, 2, 2, 2, 3, 4, 4, 7, 8, 16, 31, 64, 256]))
    kind = rng.choice(["even", "uneven", "two ends", "powers", "usual"])
    if kind == "usual" and most < 256:
        return qa.integers(usual(rng, most))
    low = -most if rng.random() < 0.6 else int(rng.integers(-most, most + 1))
    if kind == "even":
        step = max(1, (most - low) // max(1, n - 1))
        levels = [low + i * step for i in range(n) if low + i * step <= most]
    elif kind == "two ends":
        levels = [low, *range(n - 2), most]
    elif kind == "powers":
        levels = [0, *(int(s) << i for i in range(most.bit_length()) for s in rng.choice([-1, 1], 1))][: n - 1] + [most]
    else:
        levels = [int(v) for v in rng.integers(min(low, most - 1), most + 1, n)] + [most]
    levels = list(dict.fromkeys(v for v in levels if abs(v) <= most))[-256:]
    if rng.random() < 0.3:
        levels = [-v for v in levels]
    if kind != "even" or rng.random() < 0.2:
        rng.shuffle(levels)
    return qa.integers(levels)


def usual(rng: np.random.Generator, most: int) -> list[int]:
    """Return one of the common lists of levels: two levels, three, unsigned integers or signed ones."""
    bits = int(rng.integers(1, 9))
    bits = min(bits, max(1, most.bit_length()))
    choices = [[-most, most], [-most, 0, most], list(range(2**bits)), list(range(-(2 ** (bits - 1)), 2 ** (bits - 1)))]
    return choices[int(rng.integers(4))]


def codes(rng: np.random.Generator, shape: tuple[int, ...], levels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Draw codes at random, or mostly those of the largest magnitude, which carry sums to their bounds."""
    n, way = len(levels), rng.choice(["any", "largest", "last", "mostly"])
    far = int(np.abs(levels).argmax())
    if way == "largest":
        return np.full(shape, far, np.uint8)
    if way == "last":
        return np.full(shape, n - 1, np.uint8)
    drawn = rng.integers(0, n, shape, np.uint8)
    return np.where(rng.random(shape) < 0.05, drawn, np.uint8(far)) if way == "mostly" else drawn


def integer_operand(rng: np.random.Generator, shape: tuple[int, ...], most: int, axis: int = -1) -> Operand:
    """Draw an array of integer levels without a scale."""
    law = integer_law(rng, most)
    levels = np.array(law.levels, np.int64)
    drawn = codes(rng, shape, levels)
    return Operand(qa.from_codes(drawn, law, axis=axis), levels[drawn])


def real_operand(
    rng: np.random.Generator, shape: tuple[int, ...], most: int, axis: int = -1, apart: int | None = None
) -> Operand:
    """Draw an array of real levels, or of scaled integers; constants may vary along the axis `apart`."""
    kind = rng.choice(["scaled", "uniform", "basis", "table"], p=[0.55, 0.15, 0.15, 0.15])
    free = apart is not None and apart != axis % len(shape) and rng.random() < 0.5
    varies = tuple(n if free and d == apart else 1 for d, n in enumerate(shape))

    def some(*lead: int) -> np.ndarray[Any, Any]:
        drawn = rng.standard_normal((*lead, *varies)) * 2.0 ** rng.uniform(-9, 9)
        return np.float32(np.round(drawn, 1) if rng.random() < 0.3 else drawn)

    if kind == "scaled":
        plain, scale = integer_operand(rng, shape, most, axis), some()
        law = plain.packed.dtype
        scaled = qa.from_codes(plain.packed.codes(), law, axis=axis, scale=scale)
        return Operand(scaled, plain.values, scale.astype(np.float64))
    bits = int(rng.integers(1, 5 if kind == "table" else 9))
    drawn = codes(rng, shape, np.arange(2**bits))
    if kind == "table":
        table = some(2**bits)
        if rng.random() < 0.3:
            table[rng.integers(2**bits)] = table[0]  # repeated
        values = np.take_along_axis(np.broadcast_to(table, (2**bits, *shape)), drawn[None], 0)[0]
        return Operand(qa.from_codes(drawn, qa.table(bits), axis=axis, table=table), values.astype(np.float64))
    offset = some()
    if kind == "uniform":
        scale = some()
        packed = qa.from_codes(drawn, qa.uniform(bits), axis=axis, scale=scale, offset=offset)
        return Operand(packed, offset.astype(np.float64) + scale.astype(np.float64) * drawn)
    scale = some(bits)
    packed = qa.from_codes(drawn, qa.basis(bits), axis=axis, scale=scale, offset=offset)
    value = np.broadcast_to(offset.astype(np.float64), shape)
    for k in range(bits):
        value = value + scale[k].astype(np.float64) * ((drawn >> k) & 1)
    return Operand(packed, value)


def planes_of(law: qa.DType) -> int:
    """Return the bits of the coarsest grid that holds all levels, by which products count."""
    levels = law.levels or (0,)
    return bits_for(max(levels) - min(levels) + 1)
