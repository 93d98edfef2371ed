"""DoReFa-Net's weights and activations."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array, Constants, DType, integers
from .base import Quantizer, bits_of, finite_ends, fitted_axes, largest, least_float, ones_like_reduced
from .grid import Grid
from .pact import PACT
from .sign import Sign


class DoReFa(Quantizer):
    """Quantise as DoReFa-Net does (Zhou et al., arXiv 1606.06160), with n = 2**bits - 1:

    | of                   | value                                                                    |
    |----------------------|--------------------------------------------------------------------------|
    | weights (equation 9) | value = 2 * round(n * u) / n - 1, u = tanh(x) / (2 * max |tanh x|) + 1/2 |
    | weights of 1 bit     | value = sign(x) * mean |x|: `Sign(scale=True)`                           |
    | `activations` (11)   | value = round(n * clip(x, 0, 1)) / n: `PACT(bits, alpha=1)`              |

    Weights have levels -1, -1 + 2/n, .. 1 whatever the size of x, stored as the odd integers -n .. n with the scale
    1 / n; activations have the integers 0 .. n with the scale 1 / n. A tie rounds to the even code.

    A weight's level is the nearest one to 2u - 1, not to x, and levels encode to other levels: only 1 bit is nearest
    and idempotent. 0 is +1 / n, there being no level 0. Infinities are refused. A constant decodes to its sign, zeros
    to 1 / n (with 1 bit both to themselves). No law stores max |tanh x|: `encode` takes it from its x, over the
    elements that share a scale. Activations below 0 are 0, above 1 they are 1, infinities and constants included.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.arctanh(np.float32([-0.8, -0.4, 0.1, 0.4])), qa.DoReFa(2))
    >>> q.dequantize(), q.dtype
    (array([-1.        , -0.33333334,  0.33333334,  0.33333334], dtype=float32), quantarray.integers(-3, -1, 1, 3))
    >>> qa.quantize(np.float32([-1, 0.2, 0.5, 7]), qa.DoReFa(2, activations=True)).dequantize()
    array([0.        , 0.33333334, 0.6666667 , 1.        ], dtype=float32)
    """

    anywhere = True

    def __init__(self, bits: int, activations: bool = False) -> None:
        if not isinstance(activations, (bool, np.bool_)):
            raise ValueError(f"DoReFa: activations must be True or False, got {activations!r}")
        self.bits, self.activations = bits_of("DoReFa", bits), bool(activations)
        self.nearest = self.idempotent = self.monotone = self.pointwise = self._same is not None

    @property
    def dtype(self) -> DType:
        return self._same.dtype if self._same else integers(range(-self._steps, self._steps + 1, 2))

    @property
    def fixed(self) -> bool:
        return self._same is not None and self._same.fixed

    @property
    def _same(self) -> Quantizer | None:
        """Return the scheme that this is a case of, or None."""
        if self.activations:
            return PACT(self.bits, alpha=1.0)
        return Sign(scale=True) if self.bits == 1 else None

    @property
    def _steps(self) -> int:
        return (1 << self.bits) - 1

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        if self._same:
            return self._same.fit(x, axes)
        if x.size:
            finite_ends("DoReFa", x, axes)
        return Constants(scale=np.full(ones_like_reduced(x, axes), 1 / self._steps, np.float32))

    def grid(self, constants: Constants) -> Grid | None:
        return self._same.grid(constants) if self._same else None

    def encode(self, x: Array, constants: Constants) -> Array:
        if self._same:
            return self._same.encode(x, constants)
        return self._codes(x, self._peak(x, constants)).astype(np.uint8)

    def steps(self, x: Array, constants: Constants) -> tuple[Array, Array] | None:
        if self._same:
            return None
        peak = self._peak(x, constants)
        wanted = np.arange(1, self._steps + 1).reshape(-1, *(1,) * peak.ndim)
        cuts = least_float(lambda v: self._codes(v, peak) >= wanted, (self._steps, *peak.shape))
        return cuts, np.arange(self._steps + 1, dtype=np.uint8)

    def _peak(self, x: Array, constants: Constants) -> Array:
        """max |tanh x|, 1 of zeros and of nothing."""
        peak = np.tanh(largest(x, fitted_axes(constants)))
        return np.where(peak == 0, 1, peak)

    def _codes(self, x: Array, peak: Array) -> Array:
        return np.asarray(np.rint(self._steps * (np.tanh(x.astype(np.float64)) / (2 * peak) + 0.5)))

    def __repr__(self) -> str:
        return f"DoReFa({self.bits}{', activations=True' if self.activations else ''})"
