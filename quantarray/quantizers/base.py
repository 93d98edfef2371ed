"""What a quantiser is."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..dtypes import Array, Constants, DType


class Quantizer(ABC):
    """A scheme: `dtype` is known before data is, `fit` gives constants, `encode` gives codes.

    `fixed` is true where the constants don't depend on data: such a quantiser takes infinities, and
    `fold_batchnorm(..., into=it)` can turn it into thresholds.
    """

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
