"""Define a quantiser, and what several of them compute."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..backends.registry import contiguous
from ..core.dtypes import Array, Constants, DType
from ..core.format import MAX_BITS
from .extremes import extremes
from .grid import Grid

_LARGEST = float(np.finfo(np.float32).max)
_BEYOND = 2.0**128 - 2.0**103  # the least that rounds to infinity


class Quantizer(ABC):
    """Fit constants to data, and encode data by them; `dtype` is known before any data.

    `fixed` is true where the constants don't depend on data: such a quantiser takes infinities, and
    `fold_batchnorm(..., into=it)` can turn it into thresholds.

    A scheme declares `nearest` where each value gets a code of the level nearest to it, and `idempotent` where
    encoding decoded codes with the same constants gives levels of the same value, `monotone` where a larger value
    never gets a code of a smaller level: then a kernel encodes and packs in one pass. It declares `pointwise` where a
    code depends on its value and the constants alone: then large arrays are encoded in parts, and constants may come
    from a calibration array. It declares `anywhere` where `fit`, `steps` and `encode_words` take arrays on a GPU too,
    at whose values nobody has looked before: then `fit` raises ValueError for what is not finite.

    `group` is the run of elements along the packed axis that share constants where `quantize` is not told another.

    Three methods that a scheme may add make `quantize` fast: `grid` and `cuts` tell kernels what `encode` does, and
    `fit_range` fits constants to the least and the largest value. `steps` lets a GPU encode schemes that are not
    monotone.

    A scheme of your own, two bits for -1, 0 and 1 times the root mean square:

    >>> import quantarray as qa, numpy as np
    >>> class Rms(qa.Quantizer):
    ...     dtype, fixed, nearest, monotone, pointwise = qa.ternary, False, True, True, True
    ...
    ...     def fit(self, x, axes):
    ...         return qa.Constants(scale=np.sqrt(np.mean(np.square(x), axis=axes, keepdims=True)))
    ...
    ...     def encode(self, x, constants):
    ...         return 1 + np.clip(np.rint(x / constants.scale), -1, 1).astype(np.int8)
    >>> qa.quantize(np.float32([[3, -4, 0, 0], [1, -7, 5, 5]]), Rms(), scale_axis=0).dequantize()
    array([[ 2.5, -2.5,  0. ,  0. ],
           [ 0. , -5. ,  5. ,  5. ]], dtype=float32)
    """

    nearest: bool = False
    idempotent: bool = False
    monotone: bool = False
    pointwise: bool = False
    anywhere: bool = False
    group: int | None = None

    @property
    @abstractmethod
    def dtype(self) -> DType:
        """Return the law of the arrays that this quantiser makes."""

    @property
    @abstractmethod
    def fixed(self) -> bool:
        """True where `fit` does not look at its data."""

    @abstractmethod
    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        """Return constants for x, float32 or bfloat16, of x's axes with `axes` reduced to 1."""

    @abstractmethod
    def encode(self, x: Array, constants: Constants) -> Array:
        """Return uint8 codes of x, in its shape. The constants broadcast against x, as those of `fit` do."""

    def fit_range(self, ends: Array) -> Constants | None:
        """Return constants for finite values from ends[0] to ends[1], float64 [2, ..] in the constants' shape.

        None for a scheme that fits them to more than a range. `fit` returns the same constants.
        """
        return None

    def grid(self, constants: Constants) -> Grid | None:
        """Return the formula of `encode` for these constants, for a scheme with evenly spaced codes; else None.

        A kernel then computes it in one pass. A subclass that has an `encode` of its own is not asked for a grid that
        it inherits.
        """
        return None

    def cuts(self, constants: Constants) -> Array | None:
        """float64 [n_levels - 1, ..], ascending: a code is the number of cuts that x is at least; else None.

        A kernel then searches them in one pass. A subclass with an `encode` of its own is not asked for cuts either.
        """
        return None

    def steps(self, x: Array, constants: Constants) -> tuple[Array, Array] | None:
        """(cuts float64 [T, ..], ascending, codes uint8 [T + 1]): v has the code codes[how many cuts v is at least].

        For a scheme whose cuts depend on all of x, or whose codes are not in the order of their levels; else None. A
        GPU then encodes x by them.
        """
        return None

    def encode_words(self, x: Array, constants: Constants, axis: int, first: int = 0) -> Array | None:
        """Return words [bits, *outer, word] of x packed along `axis`, for a scheme with a kernel of its own; else None.

        The constants come as an array stores them, with `constants.group` elements of the packed axis an entry.
        x is a run of a larger flattened array, from its element `first` on.
        """
        return None


@lru_cache(256)  # classes that a caller writes in a loop are not stored for ever
def declares(scheme: type[Quantizer], name: str, over: str) -> bool:
    """True where a class defines a method `name`, or inherits it together with the `over` that it speaks for."""
    first = next(one for one in scheme.__mro__ if name in vars(one) or over in vars(one))
    return name in vars(first) and first is not Quantizer


def ones_like_reduced(x: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    """x's shape with `axes` reduced to 1.

    >>> ones_like_reduced(np.zeros((2, 3, 4)), (0, 2))
    (1, 3, 1)
    """
    return tuple(1 if d in axes else n for d, n in enumerate(x.shape))


def by_channel(x: Array, axes: tuple[int, ...]) -> Array:
    """x as C-contiguous rows [channels, elements]: one row for each index of the axes that are not in `axes`.

    Rows are contiguous so that a row's sums are made in the same order for any neighbours and any strides of x.

    >>> by_channel(np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), (0, 2))
    array([[1, 2, 5, 6],
           [3, 4, 7, 8]])
    """
    varying = [d for d in range(x.ndim) if d not in axes]
    rows = x.transpose(*varying, *sorted(axes))
    shape = math.prod(x.shape[d] for d in varying), math.prod(x.shape[d] for d in axes)
    return contiguous(rows.reshape(shape))


def float_rows(x: Array, axes: tuple[int, ...]) -> Array:
    """`by_channel` in float32, which holds all narrower types, or in float64."""
    narrow = x.dtype == np.float32 or x.dtype.itemsize <= 2
    rows = by_channel(x, axes).astype(np.float32 if narrow else np.float64, copy=False)
    return rows.copy() if isinstance(rows, np.ndarray) and not rows.flags.aligned else rows


def real_rows(op: str, x: Array, axes: tuple[int, ...]) -> Array:
    """Return `float_rows`; ValueError for numbers beyond float32, whose squares may be beyond float64."""
    rows = float_rows(x, axes)
    float32(op, "value", largest(rows, (1,)))
    return rows


def fitted_axes(constants: Constants) -> tuple[int, ...]:
    """Return the axes over which constants were fitted, for schemes whose codes depend on all values of those."""
    constant = constants.scale if constants.offset is None else constants.offset
    assert constant is not None
    return tuple(d for d, n in enumerate(constant.shape) if n == 1)


def largest(x: Array, axes: tuple[int, ...]) -> Array:
    """max |x| over `axes`, kept as 1, in float64; 0 of nothing."""
    if not x.size:
        return np.zeros(ones_like_reduced(x, axes))
    return np.asarray(np.abs(extremes(x, axes)).max(axis=0))


def finite_ends(op: str, x: Array, axes: tuple[int, ...]) -> Array:
    """Return `extremes`; ValueError where one is not finite: before a fit, nobody has looked at x on a GPU."""
    ends = extremes(x, axes)
    if not np.isfinite(ends).all():
        raise ValueError(f"{op}: the data must be finite")
    return ends


def middles(levels: Array) -> Array:
    """float64: halfway between neighbouring levels [codes ..]."""
    exact = levels.astype(np.float64)
    return np.asarray((exact[1:] + exact[:-1]) / 2)


def nearest_code(x: Array, levels: Array) -> Array:
    """uint8: the place of the level nearest to x among `levels` [codes ..], which ascend; of two, the larger one.

    >>> nearest_code(np.array([-9, 0.5, 0.6]), np.array([[0.0], [1], [3]]))
    array([0, 1, 1], dtype=uint8)
    """
    return passed(x, middles(levels))


def passed(x: Array, cuts: Array) -> Array:
    """uint8: how many of the ascending `cuts` [T ..] x is at least.

    >>> passed(np.array([-9, 0.5, 0.6]), np.array([[0.5], [0.6]]))
    array([0, 1, 2], dtype=uint8)
    """
    if cuts.size == len(cuts):
        return np.searchsorted(cuts.reshape(-1), x, side="right").astype(np.uint8)
    count = np.zeros(x.shape, np.uint8)
    for cut in cuts:
        count += x >= cut
    return count


def least_float(passed: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
    """Bisect for the least float64 of each entry of `shape` that passes; all above it must, up to the largest."""
    high = np.full(shape, np.finfo(np.float64).max).view(np.int64)
    low = -high
    while (low < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        passes = passed(_float_of(middle))
        low, high = np.where(passes, low, middle + 1), np.where(passes, middle, high)
    return _float_of(high)


def _float_of(key: Array) -> Array:
    """float64 of integers in the order of the floats: those of 0 and more are their bits."""
    return np.where(key < 0, np.int64(np.iinfo(np.int64).min) - key, key).view(np.float64)


def bits_of(op: str, bits: Any, least: int = 1) -> int:
    """Return a number of bits from `least` to 8, or raise ValueError."""
    if isinstance(bits, bool) or not isinstance(bits, (int, np.integer)) or not least <= bits <= MAX_BITS:
        raise ValueError(f"{op}: bits must be an integer from {least} to {MAX_BITS}, got {bits!r}")
    return int(bits)


def is_number(value: Any) -> bool:
    """True for one finite number that float32 can hold; a bool is none.

    >>> is_number(2), is_number(np.float64(1e60)), is_number(True), is_number([2])
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    exact = value if isinstance(value, int) else float(value)  # NumPy would compare a float16 with a float16 limit
    return -_LARGEST <= exact <= _LARGEST


def numbers(op: str, name: str, sequence: Any, least: int, most: int) -> tuple[float, ...]:
    """Return `least` to `most` numbers that float32 can hold, or raise ValueError."""
    listed = isinstance(sequence, Sequence) or (isinstance(sequence, np.ndarray) and sequence.ndim)
    values = list(sequence) if listed else []
    if not least <= len(values) <= most or not all(map(is_number, values)):
        count = most if least == most else f"{least} to {most}"
        raise ValueError(f"{op}: {name} must be {count} float32 numbers, got {sequence!r}")
    return tuple(float(v) for v in values)  # no list: a scheme's settings are what its thresholds are kept by


def is_positive(value: Any) -> bool:
    """True for one number that is positive as a float32 too: 1e-60 is not."""
    return is_number(value) and bool(np.float32(value) > 0)


def float32(op: str, constant: str, x: Array) -> Array:
    """Round a fitted constant to float32; ValueError where the data ask for more than float32 holds."""
    within = abs(x.item()) < _BEYOND if x.size == 1 else bool((np.abs(x) < _BEYOND).all())
    if not within:
        raise ValueError(f"{op}: the data are too large: a {constant} of {np.abs(x).max()} is beyond float32")
    return x.astype(np.float32)
