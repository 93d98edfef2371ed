"""Powers of two and zero."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array, Constants, DType, table
from .base import Quantizer, bits_of, float32, largest, middles, nearest_code


class PowerOfTwo(Quantizer):
    """Quantise to the nearest of 0 and +-s * 2**-i, i = 0 .. exponents - 1; s = 2**floor(log2(4/3 * max |x|)).

    Zhou et al., Incremental Network Quantization, arXiv 1702.03044: s is the power of two nearest to max |x|. By
    default all codes but one are levels, exponents = 2**(bits - 1) - 1. The paper spends one of its b bits on zero:
    its levels are those of PowerOfTwo(b, exponents=2**(b - 2)).

    A tie goes to the level further from 0; 0 is a level. Infinities are refused. A constant array decodes to the power
    of two nearest to it. Of zeros, and of nothing, s = 1. s is at most 2**127, and levels below float32 are 0.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([3.5, -0.9, 0.25, 0.75]), qa.PowerOfTwo(3))
    >>> q.dequantize(), q.levels.ravel()
    (array([ 4., -1.,  0.,  1.], dtype=float32), array([-4., -2., -1.,  0.,  1.,  2.,  4.], dtype=float32))
    """

    nearest = True
    idempotent = True
    monotone = True
    pointwise = True
    anywhere = True

    def __init__(self, bits: int, exponents: int | None = None) -> None:
        self.bits = bits_of("PowerOfTwo", bits, 2)
        most = 2 ** (self.bits - 1) - 1
        count = most if exponents is None else exponents
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= most:
            raise ValueError(f"PowerOfTwo: {bits} bits have 1 to {most} exponents, got {exponents!r}")
        self.exponents = int(count)

    @property
    def dtype(self) -> DType:
        return table(self.bits, 2 * self.exponents + 1)

    @property
    def fixed(self) -> bool:
        return False

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        return self._of_peak(largest(x, axes))

    def fit_range(self, ends: Array) -> Constants:
        return self._of_peak(np.maximum(-ends[0], ends[1]))

    def _of_peak(self, peak: Array) -> Constants:
        float32("PowerOfTwo", "level", peak)
        _, exponent = np.frexp(np.where(peak == 0, 1.0, peak / 0.75))
        top = np.ldexp(1.0, np.minimum(exponent - 1, 127))
        i = np.arange(self.exponents).reshape(-1, *(1,) * peak.ndim)
        magnitudes = np.ldexp(top, -i)
        return Constants(table=np.concatenate([-magnitudes, 0 * top[None], magnitudes[::-1]]).astype(np.float32))

    def cuts(self, constants: Constants) -> Array:
        """Return the middles of levels. Below 0, a middle itself gets the lower level, so its cut is the next float."""
        assert constants.table is not None
        middle = middles(constants.table[self.exponents :])
        return np.concatenate([np.minimum(np.nextafter(-middle[::-1], np.inf), 0.0), middle])

    def encode(self, x: Array, constants: Constants) -> Array:
        assert constants.table is not None
        place = nearest_code(np.abs(x.astype(np.float64)), constants.table[self.exponents :])
        return np.where(x < 0, self.exponents - place, self.exponents + place).astype(np.uint8)

    def __repr__(self) -> str:
        usual = self.exponents == 2 ** (self.bits - 1) - 1
        return f"PowerOfTwo({self.bits})" if usual else f"PowerOfTwo({self.bits}, exponents={self.exponents})"
