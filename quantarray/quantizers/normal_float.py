"""NormalFloat: quantiles of a normal distribution."""

from __future__ import annotations

from functools import cache

import numpy as np

from ..core.dtypes import Array, Constants, DType, table
from .base import Quantizer, bits_of, float32, largest, middles, nearest_code, ones_like_reduced


class NormalFloat(Quantizer):
    """Quantise to the nearest of 2**bits levels t * max |x|, with t as computed by `normal_levels`.

    Dettmers et al., QLoRA, arXiv 2305.14314, has 4 bits and a scale for each group of 64: `group=64`.

    0, 1 and -1 are levels, so 0, max |x| and a constant array decode to themselves. A tie goes to the larger level.
    Infinities are refused. Of zeros all levels are 0; of nothing, max |x| counts as 1.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-2, 0, 0.3, 1]), qa.NormalFloat(4))
    >>> q.codes(), q.dequantize()
    (array([ 0,  7,  9, 12], dtype=uint8), array([-2.        ,  0.        ,  0.32186028,  0.8814195 ], dtype=float32))
    """

    nearest = True
    idempotent = True
    monotone = True
    pointwise = True
    anywhere = True

    def __init__(self, bits: int = 4) -> None:
        self.bits = bits_of("NormalFloat", bits, 2)  # one bit has no level below 0

    @property
    def dtype(self) -> DType:
        return table(self.bits)

    @property
    def fixed(self) -> bool:
        return False

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        return self._of_peak(largest(x, axes) if x.size else np.ones(ones_like_reduced(x, axes)))

    def fit_range(self, ends: Array) -> Constants:
        return self._of_peak(np.maximum(-ends[0], ends[1]))

    def _of_peak(self, peak: Array) -> Constants:
        float32("NormalFloat", "level", peak)
        levels = normal_levels(self.bits).reshape(-1, *(1,) * peak.ndim)
        return Constants(table=(levels * peak).astype(np.float32))

    def cuts(self, constants: Constants) -> Array:
        assert constants.table is not None
        return middles(constants.table)

    def encode(self, x: Array, constants: Constants) -> Array:
        assert constants.table is not None
        return nearest_code(x, constants.table)

    def __repr__(self) -> str:
        return f"NormalFloat({self.bits})"


@cache
def normal_levels(bits: int) -> Array:
    """Return levels in [-1, 1]: quantiles of the normal distribution at even steps of probability, float64 [2**bits].

    2**(bits-1) of them step from the tail d to 1/2, and 2**(bits-1) + 1 from 1/2 to 1 - d; both ends meet in one 0,
    and all is divided by the largest. d is the mean of half a step of 1 / 2**bits and half one of 1 / (2**bits - 1)
    on either side: (1 / 2**(bits+1) + 1 / (2**(bits+1) - 2)) / 2, so that the outermost quantiles are finite.

    >>> normal_levels(2).round(4).tolist()
    [-1.0, 0.0, 0.4358, 1.0]
    """
    half, whole = 2 ** (bits - 1), 2 ** (bits + 1)
    tail = (1 / whole + 1 / (whole - 2)) / 2
    from statistics import NormalDist  # 2 ms to import, for these levels only

    normal = NormalDist()
    below, above = (
        [normal.inv_cdf(p) for p in np.linspace(0.5, 1 - tail, count)[1:].tolist()] for count in (half, half + 1)
    )
    levels = np.array([*(-v for v in reversed(below)), 0.0, *above])
    levels /= levels[-1]
    levels.flags.writeable = False
    return levels
