"""sign(x), with or without a mean-absolute scale: BinaryConnect, XNOR-Net."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array, Constants, DType, bipolar
from .base import Quantizer, float32, float_rows, is_positive, ones_like_reduced
from .grid import Grid, sign_grid
from .rows import MAGNITUDES, row_means


class Sign(Quantizer):
    """code = (x >= 0); value = a * (2 * code - 1).

    `scale=False` has a = 1: integer levels {-1, 1}. `scale=True` fits a = mean |x|, which minimises the squared
    error (Rastegari et al., XNOR-Net, arXiv 1603.05279); a number is taken as it is.

    Zero, of either sign, is +1. Infinities have their sign where nothing is fitted. Of an array of zeros the fitted
    scale is 0, so that it decodes to itself; of an empty one it is 1.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-3, 0, 1.5]), qa.Sign(scale=True))
    >>> q.scale, q.dequantize()
    (array([1.5], dtype=float32), array([-1.5,  1.5,  1.5], dtype=float32))
    """

    nearest = True
    idempotent = True
    monotone = True
    pointwise = True
    anywhere = True

    def __init__(self, scale: bool | float = False) -> None:
        if not isinstance(scale, (bool, np.bool_)) and not is_positive(scale):
            raise ValueError(f"Sign: scale must be True, False or a positive float32, got {scale!r}")
        self.scale = bool(scale) if isinstance(scale, (bool, np.bool_)) else float(scale)

    @property
    def dtype(self) -> DType:
        return bipolar

    @property
    def fixed(self) -> bool:
        return self.scale is not True

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        shape = ones_like_reduced(x, axes)
        if self.scale is False:
            return Constants()
        if self.scale is not True:
            return Constants(scale=np.full(shape, self.scale, np.float32))
        if not x.size:
            return Constants(scale=np.ones(shape, np.float32))
        mean = row_means(float_rows(x, axes), MAGNITUDES)
        return Constants(scale=float32(type(self).__name__, "scale", mean.reshape(shape)))

    def grid(self, constants: Constants) -> Grid:
        return sign_grid(constants)

    def encode(self, x: Array, constants: Constants) -> Array:
        return (x >= 0).astype(np.uint8)

    def __repr__(self) -> str:
        return f"Sign(scale={self.scale})" if self.scale is not False else "Sign()"
