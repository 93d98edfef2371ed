"""DoReFa-Net's weights and activations."""

from __future__ import annotations

import numpy as np

from ..dtypes import Array, Constants, DType, integers
from .base import Quantizer, bits_of, fitted_axes, largest, ones_like_reduced
from .pact import PACT
from .sign import Sign


class DoReFaWeights(Quantizer):
    """value = 2 * round(n * u) / n - 1, u = tanh(x) / (2 * max |tanh x|) + 1/2, n = 2**bits - 1.

    Zhou et al., DoReFa-Net, arXiv 1606.06160, equation 9: levels -1, -1 + 2/n, .. 1 whatever the size of x, stored as
    the odd integers -n .. n with the scale 1 / n. With 1 bit, sign(x) * mean |x|, which is `Sign(scale=True)`.

    A level is the nearest one to 2u - 1, not to x, and levels encode to other levels: only 1 bit is nearest and
    idempotent. A tie rounds to the even code. 0 is +1 / n, there being no level 0. Infinities are refused. A constant
    decodes to its sign, zeros to 1 / n (with 1 bit both to themselves). No law stores max |tanh x|: `encode` takes it
    from its x, over the elements that share a scale, so groups of the packed axis longer than 1 are refused.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.arctanh(np.float32([-0.8, -0.4, 0.1, 0.4])), qa.DoReFaWeights(2))
    >>> q.dequantize(), q.dtype
    (array([-1.        , -0.33333334,  0.33333334,  0.33333334], dtype=float32), quantarray.integers(-3, -1, 1, 3))
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits_of("DoReFaWeights", bits)
        self.nearest = self.idempotent = self.monotone = self.bits == 1

    @property
    def dtype(self) -> DType:
        return integers(range(-self._steps, self._steps + 1, 2))

    @property
    def fixed(self) -> bool:
        return False

    @property
    def _steps(self) -> int:
        return (1 << self.bits) - 1

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        if self.bits == 1:
            return Sign(scale=True).fit(x, axes)
        return Constants(scale=np.full(ones_like_reduced(x, axes), 1 / self._steps, np.float32))

    def encode(self, x: Array, constants: Constants) -> Array:
        if self.bits == 1:
            return Sign(scale=True).encode(x, constants)
        t = np.tanh(x.astype(np.float64))
        peak = largest(t, fitted_axes("DoReFaWeights", x, constants))
        u = t / (2 * np.where(peak == 0, 1, peak)) + 0.5
        return np.asarray(np.rint(self._steps * u).astype(np.uint8))

    def __repr__(self) -> str:
        return f"DoReFaWeights({self.bits})"


class DoReFaActivations(PACT):
    """value = round(n * clip(x, 0, 1)) / n, n = 2**bits - 1: PACT with alpha = 1.

    Zhou et al., DoReFa-Net, arXiv 1606.06160, equations 5 and 11. The constants are fixed, the codes are unsigned
    integers with the scale 1 / n.

    A tie rounds to the even code. What is below 0 is 0, what is above 1 is 1, infinities and constants included.

    >>> import quantarray as qa, numpy as np
    >>> qa.quantize(np.float32([-1, 0.2, 0.5, 7]), qa.DoReFaActivations(2)).dequantize()
    array([0.        , 0.33333334, 0.6666667 , 1.        ], dtype=float32)
    """

    def __init__(self, bits: int) -> None:
        super().__init__(bits, alpha=1.0)

    def __repr__(self) -> str:
        return f"DoReFaActivations({self.bits})"
