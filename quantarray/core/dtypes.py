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
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from .bfloat16 import bfloat16_bits, bfloat16_values
from .forks import cached_property
from .format import MAX_BITS, bits_for, is_locked, locked

Array = np.ndarray[Any, Any]
_MOST_BYTES = 1 << 12  # of constants, as a key


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


class Constants:
    """A law's numbers. They broadcast against the logical shape, and read as float32 however they are stored.

    `scale` and `offset` have the array's number of axes, 1 where they don't vary (a basis' scale has its planes
    before that, a `table` its levels). With `group`, element i of the packed axis uses entry i // group there.

    Those that a quantiser fits have 1 for the axes that it was told to reduce. `from_codes` takes scale, offset and
    table by name and needs none.

    They are read-only for good: an array that its maker could still write to is copied.

    They are stored as they were given, either all as float32 or all as bfloat16, which NumPy lacks: as its bits in
    uint16. `items`, `shapes` and `nbytes` are about what is stored.
    """

    __slots__ = ("_form", "_stored", "_values")

    def __init__(
        self,
        scale: Array | None = None,
        offset: Array | None = None,
        table: Array | None = None,
        group: int | None = None,
    ) -> None:
        arrays = {"scale": scale, "offset": offset, "table": table}
        self._stored = {name: _read_only(np.asarray(a)) for name, a in arrays.items() if a is not None}
        self._form = group, tuple([a.shape for a in self._stored.values()])  # what is there, but for its values

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Return the numbers as what has a hash; None for so many that they will not be met again."""
        if not self._stored:
            return ()
        values: tuple[Any, ...] | None = getattr(self, "_values", None)
        if values is None and self.nbytes <= _MOST_BYTES:
            arrays = [(name, a.dtype.char, a.tobytes()) for name, a in self._stored.items()]
            values = self._values = *self._form, *arrays
        return values

    @property
    def scale(self) -> Array | None:
        return self._read("scale")

    @property
    def offset(self) -> Array | None:
        return self._read("offset")

    @property
    def table(self) -> Array | None:
        return self._read("table")

    @property
    def group(self) -> int | None:
        return self._form[0]

    def _read(self, name: str) -> Array | None:
        a = self._stored.get(name)
        if a is None or a.dtype != np.uint16:
            return None if a is None else a.view()
        values = bfloat16_values(a)
        values.flags.writeable = False
        return values

    @property
    def bfloat16(self) -> bool:
        """True where the numbers are stored as bfloat16, all of them."""
        return {a.dtype for _, a, _ in self.items()} == {np.dtype(np.uint16)}

    def to_bfloat16(self) -> Constants:
        """Round these constants to bfloat16 and store them so; -0 becomes 0."""
        rounded = {name: bfloat16_bits(getattr(self, name)) for name, _, _ in self.items()}
        for bits in rounded.values():
            bits[bits == 0x8000] = 0
        return Constants(**rounded, group=self.group)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each stored array."""
        return self._form[1]

    def items(self) -> list[tuple[str, Array, int]]:
        """(name, array as stored, leading axes that are not the logical shape's) of each constant that is there."""
        if not self._stored:
            return []
        scale, offset = self._stored.get("scale"), self._stored.get("offset")
        lead = 0 if scale is None or offset is None else scale.ndim - offset.ndim
        leads = {"scale": lead, "offset": 0, "table": 1}
        return [(name, a, leads[name]) for name, a in self._stored.items()]

    def varies(self, axis: int) -> bool:
        """True where a number is not one for all of an axis of the logical shape."""
        return any(a.shape[lead + axis] != 1 for _, a, lead in self.items())

    def map(self, change: Callable[[Array, int], Array], group: int | None = None) -> Constants:
        """Replace each array, as stored, by change(array, leading axes).

        `change` returns views of what it gets, or new arrays, which become the constants' without a copy: constants
        of single elements can be larger than the words.
        """
        changed = {name: change(a, lead) for name, a, lead in self.items()}
        return Constants(**{name: a if is_locked(a) else locked(a) for name, a in changed.items()}, group=group)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for _, a, _ in self.items())

    def __repr__(self) -> str:
        """List shapes and ranges.

        >>> Constants(scale=np.float32([[0.5], [2]]), offset=np.float32([[-1]]), group=64)
        Constants(scale (2, 1) 0.5 to 2, offset (1, 1) -1, group 64)
        """
        listed = [f"{name} {a.shape} {_range(getattr(self, name))}" for name, a, _ in self.items()]
        group = [] if self.group is None else [f"group {self.group}"]
        return f"Constants({', '.join([*listed, *group, *['in bfloat16'] * self.bfloat16])})"


def _range(a: Array) -> str:
    if not a.size:
        return "empty"
    low, high = f"{a.min():.4g}", f"{a.max():.4g}"
    return low if low == high else f"{low} to {high}"


def _read_only(a: Array) -> Array:
    return a if is_locked(a) else locked(a.copy())


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
