"""Ternary weights: {-a, 0, a}."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array, Constants, DType, ternary
from .base import Quantizer, fitted_axes, float32, float_rows, is_number, ones_like_reduced, passed, real_rows
from .rows import MAGNITUDES, row_means, row_sums


class Ternary(Quantizer):
    """value = a * sign(x) where |x| > cut, else 0; cut = threshold * mean |x|, a = mean of the |x| above the cut.

    Li and Liu, Ternary Weight Networks, arXiv 1605.04711, whose 0.7 is nearly the best cut for normal and for uniform
    values. a is the best scale for these codes, but the cut is not a / 2, so codes are not the nearest level's.

    x at the cut, and zero, are 0. Infinities and values beyond float32 are refused. A constant array decodes to
    itself. Where nothing is above the cut, as of zeros or of nothing, a = 1. No law stores the cut: `encode` takes it
    from its x, over the elements that share a scale.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([1, -1.5, 0.5, -0.2]), qa.Ternary())  # the cut is 0.7 * 0.8
    >>> q.dequantize(), q.scale
    (array([ 1.25, -1.25,  0.  ,  0.  ], dtype=float32), array([1.25], dtype=float32))
    """

    idempotent = True
    anywhere = True

    def __init__(self, threshold: float = 0.7) -> None:
        if not is_number(threshold) or threshold < 0:
            raise ValueError(f"Ternary: threshold must be a number of at least 0, got {threshold!r}")
        self.threshold = float(threshold)

    @property
    def dtype(self) -> DType:
        return ternary

    @property
    def fixed(self) -> bool:
        return False

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        rows = real_rows("Ternary", x, axes)
        counts, sums = row_sums(rows, MAGNITUDES, cuts=self._cuts(rows))
        count, total = counts[:, 0] + counts[:, 2], sums[:, 0] + sums[:, 2]
        mean = np.where(count > 0, total / np.maximum(count, 1), 1.0)
        return Constants(scale=float32("Ternary", "scale", mean.reshape(ones_like_reduced(x, axes))))

    def steps(self, x: Array, constants: Constants) -> tuple[Array, Array]:
        axes = fitted_axes(constants)
        cuts = self._cuts(float_rows(x, axes))
        return cuts.T.reshape(2, *ones_like_reduced(x, axes)), np.arange(3, dtype=np.uint8)

    def encode(self, x: Array, constants: Constants) -> Array:
        return passed(x, self.steps(x, constants)[0])

    def _cuts(self, rows: Array) -> Array:
        """float64 [channels 2]: the least values that are not below minus the cut, and that are above the cut."""
        cut = self.threshold * row_means(rows, MAGNITUDES)
        return np.stack([-cut, np.nextafter(cut, np.inf)], axis=1)

    def __repr__(self) -> str:
        return "Ternary()" if self.threshold == 0.7 else f"Ternary(threshold={self.threshold})"
