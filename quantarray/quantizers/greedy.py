"""Residual planes: each plane is the sign of what the planes before it leave."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array, Constants, DType, basis
from .base import Quantizer, bits_of, fitted_axes, float32, from_channels, ones_like_reduced
from .planes import plus_minus, real_rows


class Greedy(Quantizer):
    """x ~ sum_k alpha_k * b_k: b_k = sign(r_k), alpha_k = mean |r_k|, r_{k+1} = r_k - alpha_k * b_k, from r_0 = x.

    Network sketching (Guo et al., arXiv 1706.02021). Bit k of a code is (b_k + 1) / 2, so the basis law has scale
    2 * alpha and offset -sum alpha; one bit is `Sign(scale=True)`. With `refit`, all alphas so far are moved to
    the least squared error after each plane, and the next plane is the sign of what they leave: a code then depends
    on all values that share its constants.

    The sign of 0 is +1. Codes are not those of the nearest level: a sign, once taken, stays. An array of one value
    decodes to itself, rounded to float32. Of nothing at all alpha is 1, 0, 0, ... Infinities, values beyond
    float32 and those whose scale is, are refused.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-4, -1, 2, 3]), qa.Greedy(2))
    >>> q.scale.ravel(), q.codes(), q.dequantize()
    (array([5., 2.], dtype=float32), array([0, 2, 1, 3], dtype=uint8), array([-3.5, -1.5,  1.5,  3.5], dtype=float32))
    """

    def __init__(self, bits: int, refit: bool = False) -> None:
        if not isinstance(refit, (bool, np.bool_)):
            raise ValueError(f"Greedy: refit must be True or False, got {refit!r}")
        self.bits, self.refit = bits_of("Greedy", bits), bool(refit)
        self.pointwise = not self.refit

    @property
    def dtype(self) -> DType:
        return basis(self.bits)

    @property
    def fixed(self) -> bool:
        return False

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        _, alpha = self._sketch(real_rows("Greedy", x, axes))
        return plus_minus("Greedy", alpha, ones_like_reduced(x, axes))

    def _sketch(self, rows: Array) -> tuple[Array, Array]:
        """(codes [channels elements], alpha [channels bits]) of float64 rows."""
        codes = np.zeros(rows.shape, np.uint8)
        alpha = np.tile(np.eye(1, self.bits), (len(rows), 1))
        if not rows.size:
            return codes, alpha
        left, planes = rows, []
        for k in range(self.bits):
            alpha[:, k] = np.abs(left).mean(axis=1)
            if not self.refit:  # `encode` takes its residuals with the alphas that are kept
                alpha = float32("Greedy", "coefficient", alpha).astype(np.float64)
            planes.append(left >= 0)
            codes |= planes[-1].astype(np.uint8) << np.uint8(k)
            left = left - _signed(planes[-1], alpha[:, k : k + 1])
            if self.refit:
                alpha[:, : k + 1] += _step(planes, left)
                left = rows - sum(_signed(b, alpha[:, j : j + 1]) for j, b in enumerate(planes))
        return codes, alpha

    def encode(self, x: Array, constants: Constants) -> Array:
        if self.refit:
            axes = fitted_axes(constants)
            return from_channels(self._sketch(real_rows("Greedy", x, axes))[0], x.shape, axes)
        assert constants.scale is not None
        codes, left = np.zeros(x.shape, np.uint8), x.astype(np.float64)
        for k in range(self.bits):
            plane = left >= 0
            codes |= plane.astype(np.uint8) << np.uint8(k)
            left = left - _signed(plane, constants.scale[k].astype(np.float64) / 2)
        return codes

    def __repr__(self) -> str:
        return f"Greedy({self.bits}{', refit=True' if self.refit else ''})"


def _signed(plane: Array, alpha: Array) -> Array:
    return np.where(plane, alpha, -alpha)


def _step(planes: list[Array], left: Array) -> Array:
    """Return the shortest step of alphas [channels planes] after which least is left, 0 where nothing is left.

    Planes may coincide; the pseudo-inverse moves equal ones alike.
    """
    signs = [_signed(b, np.ones(1)) for b in planes]
    gram = np.stack([np.stack([(a * b).sum(axis=1) for b in signs], axis=-1) for a in signs], axis=-1)
    wanted = np.stack([(s * left).sum(axis=1) for s in signs], axis=-1)
    inverse = np.linalg.pinv(gram, rcond=1e-13, hermitian=True)
    return np.asarray((inverse * wanted[:, None]).sum(axis=-1))
