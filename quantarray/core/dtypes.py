"""The laws: the values that the codes of an array mean.

A `DType` is known before the data: it says whether levels are integers, and it alone decides what an operation returns.
`Constants` are the numbers that turn a dtype's codes into values: a scale, an offset, a table.

| kind      | value of code c with bits b_k                  | constants                  |
|-----------|------------------------------------------------|----------------------------|
| `integer` | levels[c], times scale if there is one         | scale, optional            |
| `uniform` | offset + scale * c                             | scale (the step), offset   |
| `basis`   | offset + sum_k scale[k] * b_k                  | scale [bits ...], offset   |
| `table`   | table[c]                                       | table [n_levels ...]       |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from .constants import Constants as Constants
from .forks import cached_property
from .format import MAX_BITS, bits_for

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DType:
    """A law: what the codes of an array mean, as far as it is known without data.

    Always true:
    - `kind` is "integer", "uniform", "basis" or "table";
    - 1 <= `bits` <= 8 and 1 <= `n_levels` <= 2**bits; a basis uses all its 2**bits codes;
    - `levels` are n_levels different Python integers in code order if the kind is "integer", else None.
    """

    kind: str
    bits: int
    n_levels: int
    levels: tuple[int, ...] | None = None
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        validate_dtype(self)

    def __hash__(self) -> int:
        # Without the levels, which may be 256: equal dtypes have equal hashes, and others are told apart by ==
        return hash((self.kind, self.bits, self.n_levels))

    @property
    def is_integer(self) -> bool:
        """True where the levels are integers that are known from the dtype alone."""
        return self.levels is not None

    @cached_property
    def step(self) -> int | None:
        """Return the common difference of integer levels in code order; None where there is none or levels are real."""
        if self.levels is None:
            return None
        if self.n_levels == 1:
            return 1
        step = self.levels[1] - self.levels[0]
        even = all(b - a == step for a, b in zip(self.levels, self.levels[1:], strict=False))
        return step if even else None

    @cached_property
    def ascending(self) -> bool:
        """True for integer levels that rise from code to code."""
        return self.levels is not None and all(a < b for a, b in pairwise(self.levels))

    @cached_property
    def _term_rows(self) -> Array:
        """int64[terms 4]: first plane, planes, base and step of each of `terms(self)`.

        Private, since nobody may write to it. Not read-only, which to Numba would be another type to compile for.
        """
        return np.array([(t.first, t.planes, t.base, t.step) for t in terms(self)], np.int64)

    @cached_property
    def max_abs(self) -> int:
        """Return the largest magnitude among integer levels."""
        if self.levels is None:
            raise TypeError(f"{self} has real levels: their magnitude is known from an array's constants only")
        return max(abs(v) for v in self.levels)

    def __repr__(self) -> str:
        return f"quantarray.{self.name or _describe(self)}"

    def __str__(self) -> str:
        return self.name or _describe(self)


def _describe(dtype: DType) -> str:
    if dtype.levels is not None:
        step = dtype.step
        if dtype.n_levels > 4 and step is not None:
            by = "" if step == 1 else f", {step}"
            return f"integers(range({dtype.levels[0]}, {dtype.levels[-1] + step}{by}))"
        return f"integers({', '.join(map(str, dtype.levels))})"
    if dtype.n_levels != 2**dtype.bits:
        return f"{dtype.kind}({dtype.bits}, n_levels={dtype.n_levels})"
    return f"{dtype.kind}({dtype.bits})"


def validate_dtype(dtype: DType) -> None:
    """Raise ValueError unless the conditions in `DType`'s docstring hold."""
    if not isinstance(dtype.kind, str) or dtype.kind not in ("integer", "uniform", "basis", "table"):
        raise ValueError(f"DType: kind must be integer, uniform, basis or table, got {dtype.kind!r}")
    if type(dtype.bits) is not int or not 1 <= dtype.bits <= MAX_BITS:
        raise ValueError(f"DType: needs 1 to {MAX_BITS} bits, got {dtype.bits!r}")
    if type(dtype.n_levels) is not int:
        raise ValueError(f"DType: needs an integer number of levels, got {dtype.n_levels!r}")
    if not 1 <= dtype.n_levels <= 2**dtype.bits:
        raise ValueError(f"DType: {dtype.bits} bits hold 1 to {2**dtype.bits} levels, got {dtype.n_levels}")
    if dtype.kind == "basis" and dtype.n_levels != 2**dtype.bits:
        raise ValueError(f"DType: a basis of {dtype.bits} bits has {2**dtype.bits} levels, got {dtype.n_levels}")
    if (dtype.kind == "integer") != (dtype.levels is not None):
        raise ValueError("DType: integer levels go with the kind 'integer' and with no other")
    if dtype.levels is not None and not (type(dtype.levels) is tuple and all(type(v) is int for v in dtype.levels)):
        raise ValueError(f"DType: levels must be a tuple of Python integers, got {dtype.levels!r}")
    if dtype.levels is not None and len(set(dtype.levels)) != dtype.n_levels:
        raise ValueError(f"DType: needs {dtype.n_levels} different integer levels, got {dtype.levels}")
    if dtype.levels is not None and max(map(abs, dtype.levels)) >= 2**31:
        raise ValueError(f"DType: integer levels must be within +-(2**31 - 1), got {dtype.levels}")


def _named(name: str, levels: Iterable[int]) -> DType:
    values = tuple(levels)
    return DType("integer", bits_for(len(values)), len(values), values, name)


bipolar = _named("bipolar", (-1, 1))
ternary = _named("ternary", (-1, 0, 1))
uint1, uint2, uint3, uint4, uint5, uint6, uint7, uint8 = (
    _named(f"uint{k}", range(2**k)) for k in range(1, MAX_BITS + 1)
)
int2, int3, int4, int5, int6, int7, int8 = (
    _named(f"int{k}", range(-(2 ** (k - 1)), 2 ** (k - 1))) for k in range(2, MAX_BITS + 1)
)
_UNSIGNED = (uint1, uint2, uint3, uint4, uint5, uint6, uint7, uint8)
_SIGNED = (int2, int3, int4, int5, int6, int7, int8)
_NAMED = {d.levels: d for d in (bipolar, ternary, *_UNSIGNED, *_SIGNED)}


def integers(*levels: int | Iterable[int]) -> DType:
    """Return the dtype whose code c means the integer levels[c].

    >>> integers(-1, 1) is bipolar
    True
    >>> integers(-3, -1, 1, 3)
    quantarray.integers(-3, -1, 1, 3)
    >>> integers(range(4))
    quantarray.uint2
    """
    listed: Iterable[Any] = levels
    if len(levels) == 1 and np.iterable(levels[0]):
        listed = levels[0]
    values = []
    for v in listed:
        number = isinstance(v, (int, float, np.integer, np.floating)) and not isinstance(v, bool)
        if not number or (isinstance(v, (float, np.floating)) and not float(v).is_integer()):
            raise ValueError(f"integers: levels must be integers, got {v!r}; real levels are table(bits)")
        values.append(int(v))
    if not 1 <= len(values) <= 2**MAX_BITS:
        raise ValueError(f"integers: needs 1 to {2**MAX_BITS} levels, got {len(values)}")
    key = tuple(values)
    return _NAMED.get(key) or _made("integers", "integer", bits_for(len(key)), len(key), key)


def holding(op: str, values: Collection[Any]) -> DType:
    """Find the smallest of uint1 .. uint8 and int2 .. int8 that has all the values, uint before int.

    >>> holding("full", (0, 5)), holding("full", (-1,))
    (quantarray.uint3, quantarray.int2)
    """
    for unsigned, signed in zip(_UNSIGNED, (None, *_SIGNED), strict=True):
        for dtype in (unsigned, signed):
            if (
                dtype is not None
                and dtype.levels
                and all(v in range(dtype.levels[0], dtype.levels[-1] + 1) for v in values)
            ):
                return dtype
    raise ValueError(f"{op}: no dtype of up to 8 bits in a row holds {values}; pass dtype=integers(..) with the levels")


def _real(kind: str, bits: Any, n_levels: Any) -> DType:
    """Construct a dtype of real levels; NumPy integers become Python's, which headers of files need."""
    numbers = tuple(int(n) if isinstance(n, np.integer) else n for n in (bits, n_levels))
    all_codes = 2 ** numbers[0] if type(numbers[0]) is int and 1 <= numbers[0] <= MAX_BITS else 0
    return _made(kind, kind, numbers[0], all_codes if n_levels is None else numbers[1])


def _made(op: str, *fields: Any) -> DType:
    """Construct a dtype, or raise an error that begins with the function that was called."""
    try:
        return DType(*fields)
    except ValueError as error:
        raise ValueError(f"{op}: {str(error).removeprefix('DType: ')}") from None


def uniform(bits: int, n_levels: int | None = None) -> DType:
    """Return a dtype of real levels offset + scale * c: what an affine quantiser has.

    >>> import quantarray as qa
    >>> qa.from_codes([0, 1, 3], qa.uniform(2), scale=0.5, offset=-1).dequantize()
    array([-1. , -0.5,  0.5], dtype=float32)
    """
    return _real("uniform", bits, n_levels)


def basis(bits: int) -> DType:
    """Return a dtype of real levels offset + sum_k scale[k] * b_k over the code's bits: ABC-Net, LQ-Nets, greedy
    residuals.

    >>> import quantarray as qa
    >>> qa.from_codes([0, 1, 2, 3], qa.basis(2), scale=[0.5, 3]).dequantize()
    array([0. , 0.5, 3. , 3.5], dtype=float32)
    """
    return _real("basis", bits, None)


def table(bits: int, n_levels: int | None = None) -> DType:
    """Return a dtype of real levels, one value per code, in no particular order: Lloyd-Max, NormalFloat.

    >>> import quantarray as qa
    >>> qa.from_codes([0, 1, 2], qa.table(2, 3), table=[0.25, -7, 1]).dequantize()
    array([ 0.25, -7.  ,  1.  ], dtype=float32)
    """
    return _real("table", bits, n_levels)


@dataclass(frozen=True)
class Term:
    """A run of planes read as one integer: base + step * sum_i 2^i * b[first + i].

    A dtype's values are offset + sum over its terms of scale * term, so a product of two arrays is a sum over
    pairs of terms of exact integer products.
    """

    first: int
    planes: int
    base: int
    step: int


def terms(dtype: DType) -> list[Term]:
    """Return the terms of a dtype with arithmetic integer levels, a uniform or a basis law."""
    if dtype.kind == "basis":
        return [Term(k, 1, 0, 1) for k in range(dtype.bits)]
    if dtype.kind == "uniform":
        return [Term(0, dtype.bits, 0, 1)]
    if dtype.levels is None or dtype.step is None:
        raise TypeError(f"{dtype} is not affine in its bits")
    return [Term(0, dtype.bits, dtype.levels[0], dtype.step)]


def arithmetic(levels: tuple[int, ...]) -> tuple[int, int]:
    """(smallest, step) of the coarsest integer grid that holds every level.

    >>> arithmetic((-1, 0, 3)), arithmetic((4, -2)), arithmetic((7,))
    ((-1, 1), (-2, 6), (7, 1))
    """
    low = min(levels)
    return low, math.gcd(*(v - low for v in levels)) or 1
