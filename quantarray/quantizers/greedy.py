"""Residual planes: each plane is the sign of what the planes before it leave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.dtypes import Array, Constants, DType, basis
from .base import Quantizer, bits_of, fitted_axes, float32, float_rows, ones_like_reduced, passed, real_rows
from .planes import plus_minus
from .rows import SortedRows


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

    anywhere = True

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
        alpha, _ = self._sketch(real_rows("Greedy", x, axes))
        return plus_minus("Greedy", alpha, ones_like_reduced(x, axes))

    def _sketch(self, rows: Array) -> tuple[Array, Array]:
        """(alpha [channels bits], cuts [channels 2**bits - 1]) of float rows."""
        alpha, plane = np.tile(np.eye(1, self.bits), (len(rows), 1)), _Planes.none(len(rows))
        if not rows.size:
            return alpha, np.zeros((len(rows), 2**self.bits - 1))
        data = SortedRows(rows)
        for k in range(self.bits):
            plane = plane.cut()
            count, total = _runs(data, plane.cuts)
            left = total - count * plane.centers  # of each code, its sum
            alpha[:, k] = np.maximum((left * _signs(k + 1)[:, k]).sum(axis=1), 0) / data.length
            if not self.refit:  # `encode` takes its residuals with the alphas that are kept
                alpha = float32("Greedy", "coefficient", alpha).astype(np.float64)
            plane = plane.moved(alpha[:, k])
            if self.refit:
                alpha[:, : k + 1] += _step(count, total - count * plane.centers)
                plane = plane.at(alpha[:, : k + 1])
        return alpha, plane.cuts

    def steps(self, x: Array, constants: Constants) -> tuple[Array, Array]:
        axes = fitted_axes(constants)
        if self.refit:
            _, cuts = self._sketch(float_rows(x, axes))
        else:
            assert constants.scale is not None
            alpha = constants.scale.reshape(self.bits, -1).T.astype(np.float64) / 2
            plane = _Planes.none(len(alpha))
            for k in range(self.bits):
                plane = plane.cut().moved(alpha[:, k])
            cuts = plane.cuts
        codes = (_signs(self.bits) > 0) @ (1 << np.arange(self.bits))
        return cuts.T.reshape(cuts.shape[1], *ones_like_reduced(x, axes)), codes.astype(np.uint8)

    def encode(self, x: Array, constants: Constants) -> Array:
        if self.refit:
            cuts, codes = self.steps(x, constants)
            return codes[passed(x, cuts)]
        assert constants.scale is not None
        codes, center = np.zeros(x.shape, np.uint8), np.zeros((1,) * x.ndim)
        for k in range(self.bits):
            plane = x >= center
            codes |= plane.astype(np.uint8) << np.uint8(k)
            alpha = constants.scale[k].astype(np.float64) / 2
            center = center + np.where(plane, alpha, -alpha)
        return codes

    def __repr__(self) -> str:
        return f"Greedy({self.bits}{', refit=True' if self.refit else ''})"


class _Planes(NamedTuple):
    """A set of intervals of values that have the same signs so far, in ascending order: one for each code.

    A plane is the sign of x - center, and centers are the sums of what the planes before it took, so it cuts each
    interval in two, at its center or, if that is outside, at an end. centers [channels intervals], cuts [channels
    intervals - 1].
    """

    centers: Array
    cuts: Array

    @classmethod
    def none(cls, channels: int) -> _Planes:
        return cls(np.zeros((channels, 1)), np.zeros((channels, 0)))

    def cut(self) -> _Planes:
        """Cut each interval; both halves have its center."""
        ends = np.pad(self.cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))
        cuts = np.empty((len(ends), 2 * ends.shape[1] - 3))
        cuts[:, 0::2], cuts[:, 1::2] = np.clip(self.centers, ends[:, :-1], ends[:, 1:]), self.cuts
        return _Planes(np.repeat(self.centers, 2, axis=1), cuts)

    def moved(self, alpha: Array) -> _Planes:
        """Take alpha [channels] from the values of the upper halves, and -alpha from those of the lower ones."""
        signs = np.tile([-1.0, 1.0], self.centers.shape[1] // 2)
        return self._replace(centers=self.centers + signs * alpha[:, None])

    def at(self, alpha: Array) -> _Planes:
        """Move the centers to sums of alphas [channels planes]."""
        return self._replace(centers=(alpha[:, None] * _signs(alpha.shape[1])).sum(axis=2))


def _signs(planes: int) -> Array:
    """float64 [2**planes planes]: +-1, the signs of each interval, of which the first plane has the two halves.

    >>> _signs(2).tolist()
    [[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]
    """
    return (np.arange(2**planes)[:, None] >> np.arange(planes)[::-1] & 1) * 2.0 - 1


def _runs(data: SortedRows, cuts: Array) -> tuple[Array, Array]:
    """[channels cuts + 1]: how many values are between neighbouring cuts, and their sum."""
    places = data.below(cuts)
    whole = np.full((len(cuts), 1), data.length)
    count = np.diff(places.counts, axis=1, prepend=0, append=whole)
    return count, np.diff(places.totals, axis=1, prepend=0, append=data.total[:, None])


def _step(count: Array, left: Array) -> Array:
    """Return the shortest step of alphas [channels planes] after which least is left, 0 where nothing is left.

    count and left [channels intervals]: how many values an interval has, and the sum of what is left of them. Planes
    may coincide; the pseudo-inverse moves equal ones alike.
    """
    signs = _signs(count.shape[1].bit_length() - 1)
    planes = signs.shape[1]
    pairs = (signs[:, :, None] * signs[:, None, :]).reshape(len(signs), -1)
    gram = (count @ pairs).reshape(-1, planes, planes)
    wanted = (left[:, :, None] * signs).sum(axis=1)
    inverse = np.linalg.pinv(gram, rcond=1e-13, hermitian=True)
    return np.asarray((inverse * wanted[:, None]).sum(axis=-1))
