"""Clip activations at a level, trained or fitted."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Constants
from .base import bits_of, is_positive
from .grid import Grid
from .uniform import Uniform


class PACT(Uniform):
    """value = round(clip(x, 0, alpha) * n / alpha) * alpha / n, n = 2**bits - 1.

    Choi et al., PACT, arXiv 1805.06085, where alpha is trained: pass what training found. With alpha=None it is fitted
    as max(x, 0), `Uniform(bits, signed=False)`.

    A tie rounds to the even code. 0 and what is below are 0; what is above alpha is alpha, infinities with alpha given
    (else they are refused). A constant beyond [0, alpha] becomes the end; fitted, a positive one decodes to itself
    within one rounding of float32. Fitted to zeros, to negative values or to nothing, alpha = n.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-1, 0.3, 1, 1.7, 5]), qa.PACT(2, alpha=3))
    >>> q.dequantize(), q.dtype
    (array([0., 0., 1., 2., 3.], dtype=float32), quantarray.uint2)
    """

    def __init__(self, bits: int, alpha: float | None = None) -> None:
        steps = 2 ** bits_of(type(self).__name__, bits) - 1
        if alpha is not None and not (is_positive(alpha) and is_positive(float(alpha) / steps)):
            raise ValueError(f"PACT: alpha must be a number whose {steps}th part is a positive float32, got {alpha!r}")
        self.alpha = None if alpha is None else float(alpha)
        super().__init__(bits, signed=False, step=None if self.alpha is None else self.alpha / steps)

    def grid(self, constants: Constants) -> Grid:
        if self.alpha is None:
            return super().grid(constants)
        assert constants.scale is not None  # not x / step: a step rounded to float32 would decide ties
        shape = constants.scale.shape
        return Grid(np.zeros(shape), np.full(shape, self.alpha), factor=float(self._top), high=self._top)

    def __repr__(self) -> str:
        return f"PACT({self.bits})" if self.alpha is None else f"PACT({self.bits}, alpha={self.alpha})"
