"""What a quantiser is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..dtypes import Array, Constants, DType

_LARGEST = float(np.finfo(np.float32).max)


class Quantizer(ABC):
    """A scheme: `dtype` is known before data is, `fit` gives constants, `encode` gives codes.

    `fixed` is true where the constants don't depend on data: such a quantiser takes infinities, and
    `fold_batchnorm(..., into=it)` can turn it into thresholds.

    A scheme declares `nearest` where each value gets a code of the level nearest to it, and `idempotent` where
    encoding decoded codes with the same constants gives levels of the same value, `monotone` where a larger value
    never gets a code of a smaller level: then a kernel encodes and packs in one pass.
    """

    nearest: bool = False
    idempotent: bool = False
    monotone: bool = False

    @property
    @abstractmethod
    def dtype(self) -> DType:
        """The law of the arrays that this quantiser makes."""

    @property
    @abstractmethod
    def fixed(self) -> bool:
        """True where `fit` does not look at its data."""

    @abstractmethod
    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        """The constants for x, float32, of x's axes with `axes` reduced to 1."""

    @abstractmethod
    def encode(self, x: Array, constants: Constants) -> Array:
        """uint8 codes of x, in its shape. The constants broadcast against x."""


def ones_like_reduced(x: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    """x's shape with `axes` reduced to 1.

    >>> ones_like_reduced(np.zeros((2, 3, 4)), (0, 2))
    (1, 3, 1)
    """
    return tuple(1 if d in axes else n for d, n in enumerate(x.shape))


def is_number(value: Any) -> bool:
    """True for one finite number that float32 can hold; a bool is none.

    >>> is_number(2), is_number(np.float64(1e60)), is_number(True), is_number([2])
    (True, False, False, False)
    """
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return bool(number and -_LARGEST <= value <= _LARGEST)


def is_positive(value: Any) -> bool:
    """True for one number that is positive as a float32 too: 1e-60 is not."""
    return is_number(value) and bool(np.float32(value) > 0)


def float32(op: str, constant: str, x: Array) -> Array:
    """A fitted constant as float32; ValueError where the data ask for more than float32 holds."""
    with np.errstate(over="ignore"):
        y = x.astype(np.float32)
    if not np.isfinite(y).all():
        raise ValueError(f"{op}: the data are too large: a {constant} of {np.abs(x).max()} is beyond float32")
    return y
